(function () {
  "use strict";
  var root = document.documentElement, button = document.getElementById("theme");
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function kept() { try { return localStorage.getItem("tare-theme"); } catch (e) { return null; } }
  function keep(theme) { try { localStorage.setItem("tare-theme", theme); } catch (e) { /* private */ } }
  function current() { return root.dataset.theme || (dark.matches ? "dark" : "light"); }
  function label() { button.textContent = current() === "dark" ? "Light" : "Dark"; }
  var theme = kept();
  if (theme === "dark" || theme === "light") { root.dataset.theme = theme; }
  button.hidden = false;
  button.addEventListener("click", function () {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    keep(root.dataset.theme);
    label();
  });
  dark.addEventListener("change", label);
  label();

  // A link opens what it leads to; paper shows everything.
  function openAt(hash) {
    var name = hash.slice(1);
    try { name = decodeURIComponent(name); } catch (error) { return; }  // A link of somebody else's.
    var there = name && document.getElementById(name);
    var first = document.querySelector('details[data-part="' + CSS.escape(name) + '"]');
    if (first) { first.open = true; }
    for (var at = there; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") { at.open = true; }
    }
    if (there && there.offsetParent !== null) { (first || there).scrollIntoView(); }
  }
  document.addEventListener("click", function (event) {
    var link = event.target.closest('a[href^="#"]:not([data-choose])');
    if (link && !event.defaultPrevented) { openAt(link.getAttribute("href")); }
  });
  window.addEventListener("hashchange", function () { openAt(location.hash); });
  var opened = [];
  window.addEventListener("beforeprint", function () {
    opened = Array.prototype.filter.call(document.querySelectorAll("details.part"), function (part) { return !part.open; });
    opened.forEach(function (part) { part.open = true; });
  });
  window.addEventListener("afterprint", function () { opened.forEach(function (part) { part.open = false; }); });
  openAt(location.hash);
})();
