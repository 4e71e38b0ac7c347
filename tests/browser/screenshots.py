"""``make screenshots``: every page of a running server in light, dark and on a phone.

Run ``make run`` in another terminal first. Pictures are named PAGE-THEME-SIZE.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.chromium import DESKTOP, FLAGS, PHONE, executable
from tests.browser.signing_in import sign_in

#: Time for charts to be drawn and panels to be fetched, ms.
_SETTLE_MS = 2500
_PAGES = {
    "fleet": "/",
    "fleet-heat": "/?metric=heat",
    "conditions": "/conditions/",
    "restrictions": "/restrictions/",
    "restrictions-new": "/restrictions/new/",
    "incidents": "/incidents/",
    "queue": "/queue/",
    "queue-running": "/queue/?state=running",
    "classes": "/classes/",
    "project-new": "/projects/_new/",
    "class": "/documents/classes/checkpoint-heavy/",
    "policy": "/documents/admission-policies/headroom/",
    "energy": "/energy/",
    "goodput": "/goodput/",
    "losses": "/goodput/losses/",
    "calendar": "/calendar/",
    "rollouts": "/rollouts/",
    "channels": "/channels/",
    "channel-new": "/channels/new/",
    "wall": "/?wall=1",
    "slos": "/slos/",
    "slo": "/slos/training-begins/",
    "rules": "/rules/",
    "rule": "/rules/gpu-heat/",
    "rule-edit": "/rules/gpu-heat/edit/",
    "playbooks": "/playbooks/",
    "playbook": "/playbooks/thermal-throttle/",
    "what-if": "/what-if/?kind=power_domain&name=oslo/feed-a",
    "throttle": "/throttle/",
    "throttle-by-event": "/throttle/?by=events",
    "lemons": "/lemons/",
    "failures": "/failures/",
    "agents": "/agents/",
    "users": "/users/",
    "user-new": "/users/new/",
    "account": "/account/",
    "search": "/search?q=a0",
}
#: Pages that are reached from another one by the first link of this form.
_BEHIND = {"rack": ("/", "#heatmap a.cell"), "node": ("rack", "a[href^='/nodes/']"),
           "gpu": ("rack", "a[href^='/gpus/']"),
           "conditions-site": ("conditions", "#site-1"),
           "incident": ("incidents", "#incidents-panel th a"),
           "job": ("queue", "#queue-panel th a"),
           "job-running": ("queue-running", "#queue-panel th a"),
           "domain": ("conditions-site", "a[href^='/places/power_domain/']"),
           "zone": ("conditions-site", "a[href^='/places/zone/']"),
           "link": ("conditions-site", "a[href^='/places/link/']"),
           "storage": ("conditions-site", "a[href^='/places/storage/']"),
           "project": ("classes", "th a[href^='/projects/']"),
           "user": ("users", "th a[href^='/users/']"),
           "restriction": ("restrictions", "#restrictions-panel th a")}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.screenshots")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--password-file", type=Path, default=Path(".headroom/admin-password"))
    parser.add_argument("--out", type=Path, default=Path("build/screenshots"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        for theme in ("light", "dark"):
            for size, (width, height) in {"desktop": DESKTOP, "phone": PHONE}.items():
                page = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if theme == "dark" else "light",
                ).new_page()
                shoot(page, options.url, options.password_file, options.out, f"{theme}-{size}")


def shoot(page: Page, url: str, password_file: Path, out: Path, suffix: str) -> None:
    """Log in and take a picture of every page."""
    page.goto(f"{url}/login/")
    page.screenshot(path=out / f"login-{suffix}.png")
    sign_in(page, url, password_file)
    for name, address in addresses(page, url).items():
        page.goto(address)
        page.wait_for_timeout(_SETTLE_MS)
        page.screenshot(path=out / f"{name}-{suffix}.png")
        print(out / f"{name}-{suffix}.png")


def addresses(page: Page, url: str) -> dict[str, str]:
    """Return the address of every page by its name; of those behind others, where there is one."""
    found = {name: url + path for name, path in _PAGES.items()}
    for name, (start, link) in _BEHIND.items():
        page.goto(found.get(start, url + start))
        links = page.locator(link)
        if links.count():
            found[name] = f"{url}{links.first.get_attribute('href')}"
    return found


if __name__ == "__main__":
    main()
