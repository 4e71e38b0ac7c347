/* The editor of rules: line numbers beside the text, lines with a problem marked, and a click on a
 * problem puts the cursor there. Problems come from the server: li[data-line][data-column] in #problems. */
(function () {
  "use strict";
  const text = document.getElementById("text");
  const gutter = document.getElementById("gutter");
  if (!text || !gutter) return;

  function wrongLines() {
    const items = document.querySelectorAll("#problems li[data-line]");
    return new Set([...items].map((item) => Number(item.dataset.line)));
  }

  function draw() {
    const wrong = wrongLines();
    const count = text.value.split("\n").length;
    const lines = document.createDocumentFragment();
    for (let n = 1; n <= count; n++) {
      const line = document.createElement("span");
      line.textContent = (wrong.has(n) ? "✗ " : "") + n;
      if (wrong.has(n)) line.className = "is-wrong";
      lines.append(line);
    }
    gutter.replaceChildren(lines);
    gutter.scrollTop = text.scrollTop;
    if (wrong.size) text.setAttribute("aria-invalid", "true");
    else text.removeAttribute("aria-invalid");
  }

  function goTo(line, column) {
    const lines = text.value.split("\n");
    const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    const at = Math.min(before + Math.max(column - 1, 0), text.value.length);
    text.focus();
    text.setSelectionRange(at, at);
    const height = text.scrollHeight / Math.max(lines.length, 1);
    text.scrollTop = Math.max(0, (line - 4) * height);
  }

  text.addEventListener("input", draw);
  text.addEventListener("scroll", () => (gutter.scrollTop = text.scrollTop));
  document.addEventListener("htmx:afterSwap", draw);
  document.addEventListener("click", function (event) {
    const place = event.target instanceof Element && event.target.closest(".problem-place");
    const item = place && place.closest("li[data-line]");
    if (!item) return;
    event.preventDefault();
    goTo(Number(item.dataset.line), Number(item.dataset.column));
  });
  draw();
})();
