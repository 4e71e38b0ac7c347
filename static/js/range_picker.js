/* The form of templates/inc/range_picker.html in local time, where that is chosen. What it sends is
 * UTC all the same, so that a link means the same everywhere.
 *
 * <time data-at="Unix s"> elements of the page are told in local time, too. */
(function () {
  "use strict";
  const picker = document.querySelector(".range-picker");
  if (!picker || picker.dataset.zone !== "local") return;

  // "2026-11-27T08:00:00" of a moment, as the clock on the wall shows it.
  function onTheWall(at) {
    return new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  }

  const form = picker.querySelector("form");
  const inputs = form.querySelectorAll('input[type="datetime-local"]');
  for (const input of inputs) {
    if (input.value) input.value = onTheWall(new Date(input.value + "Z"));
  }
  for (const words of picker.querySelectorAll("[data-zone-words]")) words.textContent = "local time";
  form.addEventListener("formdata", function (event) {
    for (const input of inputs) {
      const at = new Date(input.value);
      if (input.value) event.formData.set(input.name, at.toISOString().slice(0, 19));
    }
  });
  for (const time of document.querySelectorAll("time[data-at]")) {
    const wall = onTheWall(new Date(Number(time.dataset.at) * 1000));
    time.textContent = wall.replace("T", " ") + " local time";
  }
})();
