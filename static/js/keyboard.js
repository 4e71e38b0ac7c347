/* Keys that work on every page: "/" search, "g" then a letter to go to a page (links of the
 * navigation with data-key), "?" help. Silent while a field is being typed in. */
(function () {
  "use strict";
  const GO_WITHIN_MS = 1500;
  let goSince = 0;

  const help = document.getElementById("help");
  const search = document.getElementById("search");
  const opener = document.getElementById("help-open");
  if (opener && help) {
    opener.hidden = false;
    opener.addEventListener("click", () => help.showModal());
  }

  function isTyping(target) {
    return target instanceof Element && target.closest("input, select, textarea, [contenteditable]");
  }

  function go(key) {
    const link = document.querySelector('.nav a[data-key="' + CSS.escape(key) + '"]');
    if (link) link.click();
    return Boolean(link);
  }

  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape" && event.target === search) return search.blur();
    if (isTyping(event.target) || (help && help.open)) return;
    const going = event.timeStamp - goSince < GO_WITHIN_MS;
    goSince = 0;
    if (going && go(event.key)) event.preventDefault();
    else if (event.key === "g") goSince = event.timeStamp;
    else if (event.key === "/" && search) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "?" && help) {
      event.preventDefault();
      help.showModal();
    }
  });

  // A menu closes when something else is clicked or on Escape.
  document.addEventListener("click", function (event) {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
  document.addEventListener("keydown", function (event) {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
})();
