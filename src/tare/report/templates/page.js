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
})();
