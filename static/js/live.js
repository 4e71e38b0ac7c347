/* The live indicator in the header, and what all live pages share.
 *
 * window.headroom.age(seconds)        "1.2 s", "3 min", "2 h", "5 d"
 * window.headroom.pulse(newest, now)  a page's own poll tells when the newest reading came (Unix s, or
 *                                     null for never) and what the server's clock says; while it does
 *                                     so at least every 4 s, this script does not poll itself
 * window.headroom.lost()              a page's own poll failed
 * window.headroom.signedOut()         a page's own poll was told that nobody is logged in
 * window.headroom.now()               what the server's clock says, as far as is known, Unix s
 *
 * The badge of critical incidents is brought up to date every few seconds, too.
 *
 * "live" is the age of the newest reading in the live frame. When the server cannot be reached the
 * indicator says "no contact" and the banner (#contact, made on demand) says since when, and what
 * time the data shown is from. On a screen on the wall (#wall) the banner says the same of readings
 * that are stale, and of a session that has ended: nobody is there to read a login form.
 *
 * htmx panels (hx-trigger="every …") do not poll in a hidden tab, and ask again when it is shown. */
(function () {
  "use strict";
  const POLL_MS = 3000;
  const LOST_AFTER_MS = 6000;
  const INCIDENTS_MS = 9000;
  const main = document.getElementById("main");
  const indicator = document.getElementById("live");
  const text = document.getElementById("live-text");

  let staleAfterS = 30; // until the server says what it is set to
  let newest = null; // Unix s of the newest reading, by the server's clock
  let skew = 0; // server's clock minus ours, s
  let heardAt = 0; // performance.now() of the last answer
  let since = 0; // performance.now() of the first failure after it
  let dataAt = Date.now() / 1000; // server time of the last answer, Unix s
  let polledAt = 0; // performance.now() of the last poll of our own
  const wall = document.getElementById("wall");
  let isOut = false; // whether the session has ended

  function age(seconds) {
    if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "never";
    const s = Math.max(0, seconds);
    if (s < 9.95) return s.toFixed(1) + " s";
    if (s < 119.5) return Math.round(s) + " s";
    if (s < 7170) return Math.round(s / 60) + " min";
    if (s < 172200) return Math.round(s / 3600) + " h";
    return Math.round(s / 86400) + " d";
  }

  function clock(unix) {
    return new Date(unix * 1000).toISOString().slice(11, 19) + " UTC";
  }

  function banner() {
    let element = document.getElementById("contact");
    if (!element) {
      element = document.createElement("p");
      element.id = "contact";
      element.className = "note error contact";
      element.setAttribute("role", "alert");
      main.prepend(element);
    }
    return element;
  }

  function say(words) {
    const message = banner();
    if (message.textContent !== words) message.textContent = words;
  }

  function show() {
    if (!indicator) return;
    if (isOut) {
      indicator.dataset.state = "lost";
      text.textContent = "signed out";
      say("Signed out: log in on this screen. Showing data of " + clock(dataAt) + ".");
      return;
    }
    const lostMs = since ? performance.now() - since : 0;
    if (lostMs > LOST_AFTER_MS) {
      indicator.dataset.state = "lost";
      text.textContent = "no contact";
      // Written once a minute after the first minute: an alert is read aloud each time it changes.
      const shown = lostMs < 60000 ? "" : " for " + age(lostMs / 1000);
      say("No contact with the server" + shown + ". Showing data of " + clock(dataAt) + ".");
      return;
    }
    const isOld = newest !== null && Date.now() / 1000 + skew - newest > staleAfterS;
    if (wall && heardAt && isOld) say("Stale: the newest reading is of " + clock(newest) + ".");
    else document.getElementById("contact")?.remove();
    if (!heardAt) return;
    if (newest === null) {
      indicator.dataset.state = "never";
      text.textContent = "no readings yet";
      return;
    }
    const seconds = Date.now() / 1000 + skew - newest;
    indicator.dataset.state = seconds > staleAfterS ? "stale" : "live";
    text.textContent = (seconds > staleAfterS ? "stale " : "live ") + age(seconds);
  }

  function pulse(newestReading, now) {
    newest = newestReading;
    skew = now - Date.now() / 1000;
    dataAt = now;
    heardAt = performance.now();
    since = 0;
    isOut = false;
    show();
  }

  function signedOut() {
    if (!wall) return location.reload();
    isOut = true;
    show();
  }

  function count(incidents) {
    const badge = document.getElementById("criticals");
    badge.hidden = !incidents;
    document.getElementById("criticals-count").textContent = incidents;
  }

  function lost() {
    since = since || performance.now();
    show();
  }

  async function poll() {
    const ms = performance.now();
    const isHeard = heardAt && ms - heardAt < POLL_MS + 1000;
    // A page's own poll does not tell of incidents.
    if (document.hidden || (isHeard && ms - polledAt < INCIDENTS_MS)) return;
    polledAt = ms;
    try {
      const answer = await fetch(indicator.dataset.url, {
        headers: { Accept: "application/json" },
        signal: AbortSignal.timeout(5000),
      });
      if (answer.status === 401 || answer.status === 403) return signedOut();
      if (!answer.ok) throw new Error(String(answer.status));
      const body = await answer.json();
      staleAfterS = body.stale_after_s;
      pulse(body.newest, body.now);
      count(body.criticals);
    } catch {
      lost();
    }
  }

  window.headroom = { age, pulse, lost, signedOut, now: () => Date.now() / 1000 + skew };

  if (indicator && text) {
    setInterval(poll, POLL_MS);
    setInterval(show, 1000);
    poll();
  }
  document.addEventListener("visibilitychange", function () {
    if (document.hidden) return;
    if (indicator) poll();
    for (const panel of document.querySelectorAll("[data-live-panel]")) {
      window.htmx?.trigger(panel, "headroom:visible");
    }
  });
  document.addEventListener("htmx:beforeRequest", function (event) {
    if (document.hidden && event.detail.elt.matches("[data-live-panel]")) event.preventDefault();
  });
  document.addEventListener("htmx:beforeOnLoad", function (event) {
    if (!wall || event.detail.xhr.status !== 401) return;
    event.preventDefault(); // else the answer leads to the login page
    signedOut();
  });
  for (const name of ["htmx:sendError", "htmx:timeout"]) document.addEventListener(name, lost);
})();
