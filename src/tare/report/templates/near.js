// One effect from near: its blocks with their cells, logs, consoles and counters, and how the arm's
// environment differs. The script that chooses effects, explorer.js, asks for it.
window.tareDetail = function (data, element, marked, unique) {
  "use strict";

  function detail(row, at) {
    var tr = element("tr", null, { "class": "detail", id: "detail" });
    var cell = element("td", null, { colspan: "5" });
    var box = element("div", null, { role: "region", "aria-label": row.what + ", " + marked(row.arm), tabindex: "-1" });
    box.appendChild(element("p", marked(row.arm) + " against " + marked(row.base) + ": " + row.verdict + ", " +
      row.estimate + (row.interval === "–" ? "" : " (" + row.interval + ")") + " over " + row.blocks + " blocks" +
      (row.p === "–" ? "" : ", p = " + row.p) + (row.open === "–" ? "" : "; a cost up to " + row.open + " is not excluded") + "."));
    var flags = data.flags[row.id] || [];
    if (flags.length) { box.appendChild(list(flags)); }
    box.appendChild(blocks(row, at));
    box.appendChild(leads(row));
    [row.arm].concat(row.own ? [] : [row.base]).forEach(function (arm) {
      var known = data.differences[arm];
      if (known) { box.appendChild(differences(arm, known)); }
    });
    cell.appendChild(box);
    tr.appendChild(cell);
    return tr;
  }
  function list(texts) {
    var made = element("ul", null, { "class": "flags" });
    texts.forEach(function (text) { made.appendChild(element("li", text)); });
    return made;
  }
  function valuesOf(row, arm) {
    var known = (data.values[row.key] || {})[arm], found = {};
    (known ? known[1].split(" ") : []).forEach(function (value, place) {
      if (value !== "-") { found[data.blocks[place].join(".")] = Number(value); }
    });
    return found;
  }
  function blocks(row, at) {
    var ours = valuesOf(row, row.arm), theirs = valuesOf(row, row.base);
    var again = data.twins[row.base], twin = again ? valuesOf(row, again) : null;
    var lost = cellsOf(row, row.arm), lostThere = cellsOf(row, row.base);
    var names = unique([].concat(Object.keys(ours), Object.keys(theirs), Object.keys(lost[1]), Object.keys(lostThere[1])));
    // What has too many values for this page still has its blocks, each with its cells.
    var bare = !Object.keys(ours).length && !Object.keys(theirs).length;
    if (bare) { names = unique(names.concat(data.blocks.map(function (block) { return block.join("."); }))); }
    names.sort(function (a, b) { var x = a.split("."), y = b.split("."); return x[0] - y[0] || x[1] - y[1]; });
    var made = element("table", null, { "class": "blocks" }), unit = prefixed(row, [ours, theirs, twin || {}]);
    made.appendChild(element("caption", "Block by block" + (bare ? "; for values: tare export DIR" : unit[0] === "/s" ? ", per second" : unit[0] ? ", in " + unit[0] : "")));
    var head = made.createTHead().insertRow();
    ["Block", row.arm, row.base].concat(twin ? [again] : [], ["Ratio", "Cell and logs"]).forEach(function (text) {
      head.appendChild(element("th", text, { scope: "col" }));
    });
    var rest = made.createTBody();
    names.forEach(function (name) {
      var tr = rest.insertRow(), parts = name.split(".");
      var block = (data.runs.length > 1 ? data.runs[parts[0]] + ", " : "") + parts[1];
      var shown = name === at, first = element("td");
      first.appendChild(element("button", block, {
        type: "button", "class": "near-opens", "data-at": name, "aria-expanded": String(shown),
        "aria-label": "block " + block + " from near"
      }));
      tr.appendChild(first);
      tr.appendChild(element("td", number(ours[name], unit[1]), { "class": "n" }));
      tr.appendChild(element("td", number(theirs[name], unit[1]), { "class": "n" }));
      if (twin) { tr.appendChild(element("td", number(twin[name], unit[1]), { "class": "n" })); }
      tr.appendChild(element("td", ratio(ours[name], theirs[name], twin && twin[name]), { "class": "n" }));
      tr.appendChild(origin(row, name, lost));
      if (shown) { rest.appendChild(nearBlock(row, name, block, head.cells.length)); }
    });
    var scroll = element("div", null, { "class": "scroll", role: "region", "aria-label": "Block by block", tabindex: "0" });
    scroll.appendChild(made);
    return scroll;
  }
  function prefixed(row, several) {
    // Seconds and bytes get an SI prefix, the same for a whole table.
    var known = data.values[row.key] || {}, unit = (known[row.arm] || known[row.base] || [""])[0];
    var most = 0;
    several.forEach(function (values) {
      Object.keys(values).forEach(function (name) { most = Math.max(most, Math.abs(values[name])); });
    });
    if (["s", "B", "B/s"].indexOf(unit) < 0 || !most) { return [unit === "1" ? "" : unit.replace(/^1\//, "/"), 1]; }
    var step = Math.max(-3, Math.min(unit === "s" ? 0 : 4, Math.floor(Math.log10(most) / 3)));
    return [["n", "µ", "m", "", "k", "M", "G", "T"][step + 3] + unit, Math.pow(1000, step)];
  }
  function number(value, factor) { return value === undefined ? "–" : String(Number((value / factor).toPrecision(4))); }
  function ratio(ours, theirs, twin) {
    var base = [theirs, twin].filter(function (v) { return v !== undefined && v !== null; });
    if (ours === undefined || !base.length) { return "–"; }
    if (ours > 0 && base.every(function (v) { return v > 0; })) {
      var middle = Math.exp(base.reduce(function (sum, v) { return sum + Math.log(v); }, 0) / base.length);
      return Number((ours / middle).toPrecision(4)) + "×";
    }
    return "–";
  }
  function cellsOf(row, arm) {
    var found = Object.keys(data.cells).filter(function (name) { return data.cells[name].keys.indexOf(row.key) >= 0; });
    return (found.length && data.cells[found[0]].arms[arm]) || ["", {}];
  }
  function cellName(name, rest) {
    var block = name.split(".")[1];
    return "b" + ("00" + block).slice(-Math.max(3, block.length)) + "/" + rest;
  }
  function machineOf(row, arm, name) { return (data.machines[arm + "|" + row.scenario] || {})[name] || []; }
  function logs(place, machine) {
    machine.slice(1).forEach(function (file) {
      place.appendChild(document.createTextNode(" "));
      place.appendChild(element("a", file, { href: "machines/" + encodeURIComponent(machine[0]) + "/" + encodeURIComponent(file) }));
    });
  }
  function origin(row, name, lost) {
    var cell = element("td", null, { "class": "c-cell" });
    cell.appendChild(element("span", cellName(name, lost[0])));
    if (lost[1][name]) { cell.appendChild(element("b", " " + lost[1][name])); }
    logs(cell, machineOf(row, row.arm, name));
    return cell;
  }
  function nearBlock(row, name, block, columns) {
    // One block from near: of each arm its value, cell, machine, logs, console and counters.
    var tr = element("tr", null, { "class": "near", id: "near" });
    var cell = element("td", null, { colspan: String(columns) });
    var box = element("div", null, { role: "region", "aria-label": "Block " + block, tabindex: "-1" });
    var arms = [row.arm, row.base].concat(data.twins[row.base] ? [data.twins[row.base]] : []);
    var values = arms.map(function (arm) { return valuesOf(row, arm); }), unit = prefixed(row, values);
    unique(arms).forEach(function (arm, place) {
      var known = cellsOf(row, arm), lost = known[1][name], machine = machineOf(row, arm, name), found = values[place][name];
      var item = element("dd"), full = cellName(name, known[0]);
      if (!known[0]) { return; }
      box.appendChild(element("h4", marked(arm) + (found === undefined ? "" : ": " + number(found, unit[1]) + (unit[0].charAt(0) === "/" ? "" : " ") + unit[0])));
      var list = element("dl");
      item.appendChild(element("code", full));
      item.appendChild(document.createTextNode(lost ? " " : found === undefined ? "" : " counts"));
      if (lost) { item.appendChild(element("b", lost)); }
      pairOf(list, "cell", item);
      if (machine.length) {
        item = element("dd", machine[0]);
        logs(item, machine);
        pairOf(list, machine.length > 1 ? "machine and logs" : "machine", item);
      }
      ((data.counters || {})[name.split(".")[0] + "." + full] || []).forEach(function (line) {
        var parts = line.split(": ");
        pairOf(list, "counters of " + parts[0], element("dd", parts.slice(1).join(": ")));
      });
      box.appendChild(list);
      var end = (data.ends || {})[machine[0]];
      if (end) { box.appendChild(element("pre", end.join("\n"))); }
    });
    cell.appendChild(box);
    tr.appendChild(cell);
    return tr;
  }
  function pairOf(list, word, item) {
    list.appendChild(element("dt", word));
    list.appendChild(item);
  }
  function leads(row) {
    var made = element("p", null, { "class": "leads" });
    [[row.section, "its workload’s figures and tables"], ["monitoring", "counters of machines and hosts"],
      ["causes", "what caused the gaps"], ["lost", "what failed"], ["environment", "the environment"]].forEach(function (lead) {
      if (lead[0] && document.getElementById(lead[0])) {
        made.appendChild(element("a", lead[1], { href: "#" + lead[0] }));
      }
    });
    // Each of two runs has a page of its own, in which an effect has the same name.
    (data.reports || []).forEach(function (report) {
      made.appendChild(element("a", report[0], { href: report[1] + "#" + row.id }));
    });
    return made;
  }
  function differences(arm, known) {
    var made = element("details"), more = known[0] - known[1].length;
    made.appendChild(element("summary", "How the environment of " + marked(arm) + " differs from " + (data.apart || data.baseline) + " (" + known[0] + ")"));
    made.appendChild(list(known[1].map(function (one) {
      return one[0] + ": " + one[1] + " → " + one[2] + (one[3] ? ". " + one[3] : "");
    }).concat(more > 0 ? [more + " more under “The environment”"] : [])));
    return made;
  }

  return detail;
};
