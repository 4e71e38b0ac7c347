/* Theme: "light", "dark", or as the system says. Loaded in <head> without defer, so that the choice
 * is on <html data-theme> before the first paint. Pages that draw with JS listen to "headroom:theme"
 * on document and read colors again from CSS custom properties. */
(function () {
  "use strict";
  const KEY = "headroom.theme";
  const ORDER = ["system", "light", "dark"];
  const LABEL = { system: "as the system", light: "light", dark: "dark" };
  const root = document.documentElement;

  function stored() {
    try {
      const value = localStorage.getItem(KEY);
      return ORDER.includes(value) ? value : "system";
    } catch {
      return "system"; // storage is forbidden: the system's choice holds
    }
  }

  function apply(theme) {
    if (theme === "system") root.removeAttribute("data-theme");
    else root.dataset.theme = theme;
  }

  function announce() {
    document.dispatchEvent(new CustomEvent("headroom:theme"));
  }

  function describe(button, theme) {
    button.setAttribute("aria-label", "Theme: " + LABEL[theme]);
    button.title = "Theme: " + LABEL[theme];
  }

  apply(stored());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", announce);

  document.addEventListener("DOMContentLoaded", function () {
    const button = document.getElementById("theme");
    if (!button) return;
    let theme = stored();
    button.hidden = false;
    describe(button, theme);
    button.addEventListener("click", function () {
      theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // the choice holds for this page only
      }
      apply(theme);
      describe(button, theme);
      announce();
    });
  });
})();
