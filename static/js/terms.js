/* Meanings of terms ({% term %}): under the pointer and at the focus; a tap or Enter opens them
 * without any script, Escape closes. The meaning may be pointed at itself, and stands in the top
 * layer, where no table that scrolls cuts it off. */
(function () {
  "use strict";
  const REST_MS = 150;
  const GAP_PX = 6;
  let timer = 0;

  function meaningOf(target) {
    const term = target instanceof Element ? target.closest(".term") : null;
    return term ? [term, document.getElementById(term.getAttribute("popovertarget"))] : [];
  }

  function place(term, meaning) {
    const at = term.getBoundingClientRect();
    const size = meaning.getBoundingClientRect();
    const left = Math.max(GAP_PX, Math.min(at.left, innerWidth - size.width - GAP_PX));
    const below = at.bottom + GAP_PX;
    const fits = below + size.height < innerHeight;
    meaning.style.left = left + "px";
    meaning.style.top = (fits ? below : Math.max(GAP_PX, at.top - size.height - GAP_PX)) + "px";
  }

  function show(term, meaning) {
    if (!meaning || !term.isConnected || meaning.matches(":popover-open")) return;
    meaning.showPopover();
  }

  function hide(meaning) {
    if (meaning && meaning.matches(":popover-open")) meaning.hidePopover();
  }

  // Opened by whatever: by us, by a tap, by the keyboard.
  document.addEventListener(
    "toggle",
    (event) => {
      const meaning = event.target;
      if (event.newState !== "open" || !meaning.matches(".meaning")) return;
      const term = document.querySelector('[popovertarget="' + CSS.escape(meaning.id) + '"]');
      if (term) place(term, meaning);
    },
    true,
  );
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const [term, meaning] = meaningOf(event.target);
    const isIn = event.target instanceof Element && event.target.closest(".meaning");
    if (isIn) clearTimeout(timer);
    if (!term) return;
    clearTimeout(timer);
    timer = setTimeout(show, REST_MS, term, meaning);
  });
  document.addEventListener("pointerout", (event) => {
    const inside = event.target instanceof Element && event.target.closest(".meaning");
    const meaning = inside || meaningOf(event.target)[1];
    if (!meaning) return;
    clearTimeout(timer);
    timer = setTimeout(hide, REST_MS, meaning);
  });
  document.addEventListener("focusin", (event) => {
    const [term, meaning] = meaningOf(event.target);
    if (term && term.matches(":focus-visible")) show(term, meaning);
  });
  document.addEventListener("focusout", (event) => hide(meaningOf(event.target)[1]));
})();
