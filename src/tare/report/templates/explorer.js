// Choose, sort and look closer at the effects of this page. Every verdict and every text comes from
// the analysis, in the element "explorer-data"; nothing is judged here. The selection is kept in
// the page's address, so that a link leads to the same view.
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("explorer-data").textContent);
  var section = document.getElementById("explore"), form = document.getElementById("choose");
  var table = document.getElementById("effects"), body = table.tBodies[0];
  var status = document.getElementById("choose-said");
  var NAME = /^e[0-9a-f]{12}$/;
  var ORDER = ["worse", "differs", "inconclusive", "preliminary", "equivalent", "better"];
  var FIELDS = ["base", "arm", "resource", "scenario", "workload", "verdict"];
  var first = { base: data.baseline, arm: "", resource: "", scenario: "", workload: "", verdict: "", all: "", sort: "", open: "", block: "" };
  var state = Object.assign({}, first);

  var rows = data.rows.map(function (row, place) {
    var key = data.keys[row[1]], text = row[6];
    return {
      id: row[0], key: row[1], arm: row[2], base: row[3], headline: row[4] === 1, blocks: row[5],
      what: text[0] + " · " + text[1], estimate: text[2], interval: text[3], verdict: text[4], open: text[5],
      p: text[6], cost: row[7], scenario: key[0], workload: key[1], section: key[2], resource: key[3] || "", place: place,
      own: row[3] === data.baseline || ownBaseline(row[3])
    };
  });
  var byName = {};
  rows.forEach(function (row) {
    byName[row.id] = row;
    row.there = document.getElementById(row.id);
    // A link to an effect shows it here; without this script it leads to its row.
    if (row.there) { row.there.removeAttribute("id"); row.there.setAttribute("data-effect", ""); }
  });

  // Arms on other hosts have baselines of their own, which belong to the study's choice.
  function ownBaseline(arm) { return data.arms.indexOf(arm) < 0 || data.own.indexOf(arm) >= 0; }

  function element(name, text, attributes) {
    var made = document.createElement(name);
    if (text !== undefined && text !== null) { made.textContent = text; }
    Object.keys(attributes || {}).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    return made;
  }
  function marked(arm) { return data.emulated.indexOf(arm) < 0 ? arm : arm + " (emulated)"; }
  function unique(values) { return values.filter(function (v, i) { return values.indexOf(v) === i; }); }
  var detail = window.tareDetail(data, element, marked, unique);

  // What is chosen, and the page's address.

  function read() {
    var hash = location.hash.slice(1);
    if (NAME.test(hash) && byName[hash]) {
      show(byName[hash]);
      state.open = hash;
      state.block = "";
      return true;
    }
    if (location.hash && location.hash.indexOf("=") < 0) { return false; }
    var given = new URLSearchParams(location.hash.slice(1));
    Object.keys(first).forEach(function (name) {
      state[name] = given.has(name) ? given.get(name) : first[name];
    });
    // A link may be of another report of the study, which had more: what this one lacks is not chosen.
    FIELDS.forEach(function (name) {
      var there = Array.prototype.some.call(form.elements[name].options, function (option) {
        return option.value === state[name];
      });
      if (!there) { state[name] = first[name]; }
    });
    if (!byName[state.open]) { state.open = ""; }
    if (!state.open) { state.block = ""; }
    return Boolean(state.open);
  }
  function show(row) {
    // An effect that was asked for by name is not to be hidden by what was chosen before.
    state.base = row.own ? data.baseline : row.base;
    if (!row.headline) { state.all = "1"; }
    if (!chosen(row)) { state.arm = state.resource = state.scenario = state.workload = state.verdict = ""; }
  }
  function write() {
    var given = new URLSearchParams();
    Object.keys(first).forEach(function (name) {
      if (state[name] !== first[name]) { given.set(name, state[name]); }
    });
    var text = given.toString();
    history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
  }
  function chosen(row, details) {
    return (state.base === data.baseline ? row.own : !row.own && row.base === state.base) &&
      (!state.arm || row.arm === state.arm) && (!state.scenario || row.scenario === state.scenario) &&
      (!state.workload || row.workload === state.workload) &&
      (!state.resource || row.resource === state.resource) &&
      (!state.verdict || row.verdict === state.verdict) && (details || state.all || row.headline);
  }

  // The choices and the table.

  function options(name, values, every, label) {
    var select = form.elements[name];
    if (every) { select.appendChild(element("option", every, { value: "" })); }
    values.forEach(function (value) {
      select.appendChild(element("option", label ? label(value) : value, { value: value }));
    });
    select.parentNode.hidden = values.length < 2;
  }
  function fill() {
    var has = unique(rows.filter(function (r) { return !r.own; }).map(function (r) { return r.base; }));
    options("base", [data.baseline].concat(data.arms.filter(function (a) { return has.indexOf(a) >= 0; })), "", marked);
    options("arm", unique(rows.map(function (r) { return r.arm; })), "every arm", marked);
    options("resource", unique(rows.map(function (r) { return r.resource; }).filter(Boolean)), "every resource",
      function (name) { return data.resources[name] || name; });
    options("scenario", unique(rows.map(function (r) { return r.scenario; })), "every scenario");
    options("workload", unique(rows.map(function (r) { return r.workload; })), "every workload");
    var words = unique(rows.map(function (r) { return r.verdict; }));
    options("verdict", ORDER.filter(function (v) { return words.indexOf(v) >= 0; }), "every verdict");
    form.elements.all.parentNode.hidden = rows.every(function (r) { return r.headline; });
  }
  function sorted(found) {
    var name = state.sort.replace("-", ""), down = state.sort[0] === "-" ? -1 : 1;
    var value = {
      what: function (r) { return r.what; }, arm: function (r) { return r.arm; },
      cost: function (r) { return r.cost[0] === null ? -Infinity : r.cost[0]; },
      verdict: function (r) { return ORDER.indexOf(r.verdict); }
    }[name];
    return value ? found.sort(function (a, b) {
      var x = value(a), y = value(b);
      return down * (x < y ? -1 : x > y ? 1 : 0) || a.place - b.place;
    }) : found;
  }
  function draw() {
    var found = sorted(rows.filter(function (row) { return chosen(row); }));
    var ends = scale(found);
    body.textContent = "";
    found.forEach(function (row) {
      body.appendChild(line(row, ends));
      if (row.id === state.open) { body.appendChild(detail(row, state.block)); }
    });
    if (!found.length) {
      var none = element("tr", null, { "class": "none" });
      none.appendChild(element("td", "No result matches these choices.", { colspan: "5" }));
      body.appendChild(none);
    }
    FIELDS.forEach(function (name) { form.elements[name].value = state[name]; });
    form.elements.all.checked = Boolean(state.all);
    form.elements.all.disabled = state.base !== data.baseline;
    table.tHead.querySelectorAll("th").forEach(function (th) {
      var own = state.sort.replace("-", "") === th.dataset.sort;
      th.setAttribute("aria-sort", !own ? "none" : state.sort[0] === "-" ? "descending" : "ascending");
    });
    status.textContent = found.length + (found.length === 1 ? " effect" : " effects") +
      (!narrowed() ? "." : state.base === data.baseline ? " as chosen; figures and tables below show the same choice." : " as chosen.");
    document.getElementById("effects-about").textContent = about();
    narrow(rows.filter(function (row) { return chosen(row, true); }));
  }
  function about() {
    if (data.about) { return data.about[state.base] || ""; }
    if (state.base === data.baseline) {
      return "Against " + data.baseline + (data.twins[data.baseline] ? ", with the boots of " + data.twins[data.baseline] : "") +
        ": the verdicts of the study";
    }
    return "Against " + marked(state.base) + ", headline metrics only: verdicts that hold for all pairs of arms together. " +
      "For those of a baseline chosen beforehand: tare report DIR --baseline " + state.base;
  }
  function narrowed() { return state.arm || state.resource || state.scenario || state.workload || state.verdict; }
  function narrow(found) {
    var kept = {};
    found.forEach(function (row) { kept[row.id] = true; });
    rows.forEach(function (row) {
      if (row.there) {
        row.there.hidden = Boolean(narrowed()) && state.base === data.baseline && !kept[row.id];
      }
    });
    var dims = Boolean(narrowed()) && state.base === data.baseline;
    document.querySelectorAll("figure svg a").forEach(function (mark) {
      var row = byName[(mark.getAttribute("href") || "").slice(1)];
      mark.classList.toggle("dim", Boolean(row) && dims && !kept[row.id]);
    });
    document.querySelectorAll("figure").forEach(function (figure) {
      var marks = Array.prototype.filter.call(figure.querySelectorAll("svg a"), function (mark) {
        return byName[(mark.getAttribute("href") || "").slice(1)];
      });
      figure.classList.toggle("empty", marks.length > 0 && marks.every(function (mark) { return mark.classList.contains("dim"); }));
    });
    // Tables of values have the baseline's lines too, which an arm is compared with.
    var others = rows.filter(function (row) { return row.own && row.arm !== state.arm; })
      .map(function (row) { return marked(row.arm); });
    document.querySelectorAll("section[data-workload] tbody > tr:not([data-effect])").forEach(function (tr) {
      var arm = tr.querySelector("td.c-arm");
      tr.hidden = Boolean(arm && dims && state.arm && others.indexOf(arm.textContent) >= 0);
    });
    document.querySelectorAll(".scroll").forEach(function (box) {
      var shown = Array.prototype.filter.call(box.querySelectorAll("tbody > tr"), function (tr) { return !tr.hidden; });
      box.classList.toggle("empty", dims && !shown.length);
    });
    document.querySelectorAll("section[data-workload]").forEach(function (part) {
      part.hidden = Boolean((state.scenario && part.dataset.scenario !== state.scenario) ||
        (state.workload && part.dataset.workload !== state.workload));
    });
  }

  // One effect as a line: what, arm, verdict, and a bar of its cost.

  function line(row, ends) {
    // On a phone the browser no longer treats a line as a table row, so its role is set.
    var tr = element("tr", null, { "class": row.verdict, "data-id": row.id, role: "row" });
    var cell = element("td", null, { "class": "c-what" });
    cell.appendChild(element("button", row.what, {
      type: "button", "class": "opens", "aria-expanded": String(row.id === state.open)
    }));
    tr.appendChild(cell);
    tr.appendChild(element("td", marked(row.arm), { "class": "c-arm" }));
    tr.appendChild(element("td", row.verdict + (row.open === "–" ? "" : ": " + row.open + " not excluded"), { "class": "c-verdict" }));
    var bar = element("td", null, { "class": "bar" });
    bar.appendChild(drawing(row, ends));
    tr.appendChild(bar);
    var numbers = element("td", row.estimate, { "class": "n" });
    if (row.interval !== "–") { numbers.appendChild(element("small", row.interval)); }
    tr.appendChild(numbers);
    Array.prototype.forEach.call(tr.cells, function (each) { each.setAttribute("role", "cell"); });
    return tr;
  }
  function scale(found) {
    // From the least to the greatest cost, but not as far as intervals that nothing bounds.
    var logs = found.filter(function (row) { return row.cost[0] !== null; }).map(function (row) { return Math.log(row.cost[0]); });
    var low = Math.min.apply(null, logs.concat(-0.1)), high = Math.max.apply(null, logs.concat(0.1));
    var spare = 0.12 * (high - low);
    return [low - spare, high + spare];
  }
  function drawing(row, ends) {
    var space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
    svg.setAttribute("viewBox", "0 0 160 14");
    svg.setAttribute("aria-hidden", "true");
    function x(cost) { return 160 * Math.max(0, Math.min(1, (Math.log(cost) - ends[0]) / (ends[1] - ends[0]))); }
    function stroke(x1, y1, x2, y2, name) {
      var drawn = document.createElementNS(space, "line");
      [["x1", x1], ["y1", y1], ["x2", x2], ["y2", y2], ["class", name]].forEach(function (pair) {
        drawn.setAttribute(pair[0], pair[1]);
      });
      svg.appendChild(drawn);
    }
    stroke(x(1), 0, x(1), 14, "even");
    if (row.cost[0] === null) { return svg; }
    if (row.cost[1] !== null && row.cost[2] !== null) { stroke(x(row.cost[1]), 7, x(row.cost[2]), 7, "range"); }
    stroke(x(row.cost[0]), 2, x(row.cost[0]), 12, "mark");
    return svg;
  }

  // What the reader does.

  function change() { write(); draw(); }
  function look() {
    var detail = document.getElementById("detail"), near = document.getElementById("near") || detail;
    if (near) {
      near.previousSibling.scrollIntoView({ block: "start" });
      near.querySelector("[role=region]").focus({ preventScroll: true });
    }
  }
  function focusOn(selector) {
    var found = body.querySelector(selector);
    if (found) { found.focus(); }
  }
  form.addEventListener("change", function () {
    FIELDS.forEach(function (name) { state[name] = form.elements[name].value; });
    state.all = form.elements.all.checked && state.base === data.baseline ? "1" : "";
    state.open = state.block = "";
    change();
  });
  form.addEventListener("reset", function (event) {
    event.preventDefault();
    state = Object.assign({}, first);
    change();
  });
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  table.tHead.addEventListener("click", function (event) {
    var th = event.target.closest("th[data-sort]");
    if (!th) { return; }
    var name = th.dataset.sort;
    // Up, down, and back to the order of the study.
    state.sort = state.sort === name ? "-" + name : state.sort === "-" + name ? "" : name;
    change();
  });
  body.addEventListener("click", function (event) {
    var near = event.target.closest(".near-opens");
    if (near) {
      var at = near.dataset.at;
      state.block = state.block === at ? "" : at;
      change();
      focusOn('[data-at="' + at + '"]');
      return;
    }
    var button = event.target.closest(".opens");
    if (!button) { return; }
    var id = button.closest("tr").dataset.id;
    state.open = state.open === id ? "" : id;
    state.block = "";
    change();
    focusOn('tr[data-id="' + id + '"] .opens');
  });
  body.addEventListener("keydown", function (event) {
    if (event.key !== "Escape" || !state.open) { return; }
    // First the block from near is closed, then the effect.
    var id = state.open, at = state.block;
    if (at) { state.block = ""; } else { state.open = ""; }
    change();
    focusOn(at ? '[data-at="' + at + '"]' : 'tr[data-id="' + id + '"] .opens');
  });
  document.addEventListener("click", function (event) {
    // The cost of a resource leads to its metrics; without this script to all workloads.
    var cost = event.target.closest("a[data-choose]");
    if (cost && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      history.pushState(null, "", "#" + cost.dataset.choose);
      read();
      change();
      section.scrollIntoView({ block: "start" });
      return;
    }
    // A mark of one boot leads to its block; without this script to the effect's row.
    var mark = event.target.closest("svg a[data-at]");
    var row = mark && byName[mark.getAttribute("href").slice(1)];
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey) { return; }
    event.preventDefault();
    history.pushState(null, "", "#" + row.id);
    show(row);
    state.open = row.id;
    state.block = mark.dataset.at;
    change();
    look();
  });
  window.addEventListener("hashchange", function () {
    if (location.hash && location.hash.indexOf("=") < 0 && !NAME.test(location.hash.slice(1))) { return; }
    var near = read();
    change();
    if (near) { look(); }
  });

  fill();
  section.hidden = false;
  var near = read();
  draw();
  if (near) { look(); }
})();
