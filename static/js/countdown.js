/* Time left: elements with data-until (Unix s) say it, counted down each second by the server's clock.
 * The time itself stands beside them, so nothing is lost without this script. */
(function () {
  "use strict";

  function left(seconds) {
    if (seconds <= 0) return "time is up";
    const whole = Math.ceil(seconds);
    const pad = (n) => String(n).padStart(2, "0");
    const minutes = Math.floor(whole / 60);
    if (minutes < 60) return minutes + ":" + pad(whole % 60) + " left";
    return Math.floor(minutes / 60) + ":" + pad(minutes % 60) + ":" + pad(whole % 60) + " left";
  }

  function show() {
    const now = window.headroom.now();
    for (const element of document.querySelectorAll("[data-until]")) {
      const text = left(Number(element.dataset.until) - now);
      if (element.textContent !== text) element.textContent = text;
    }
  }

  document.addEventListener("htmx:afterSettle", show);
  setInterval(show, 1000);
  show();
})();
