"use strict";
(() => {
  const BACK = 2000; // milliseconds a button says what it did

  // Copying: the clipboard where the browser gives it, else a selection and the old command, else the selection alone.
  const select = (code) => {
    const range = document.createRange();
    range.selectNodeContents(code);
    const chosen = getSelection();
    chosen.removeAllRanges();
    chosen.addRange(range);
  };
  const copy = async (code) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return "copied";
    } catch {
      select(code);
      return document.execCommand("copy") ? "copied" : "selected";
    }
  };
  for (const command of document.querySelectorAll(".command")) {
    const code = command.firstElementChild;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "copy";
    button.title = "copy this command";
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      const said = await copy(code);
      button.textContent = said;
      button.classList.toggle("done", said === "copied");
      setTimeout(() => { button.textContent = "copy"; button.classList.remove("done"); }, BACK);
    });
    command.append(button);
  }

  // The filter: every word must occur; what is folded opens while something in it is looked for.
  const items = [...document.querySelectorAll(".item")];
  const head = document.querySelector(".head");
  if (!head || items.length < 8) return;
  const box = document.createElement("p");
  box.className = "filter";
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = matchMedia("(hover: hover)").matches ? "filter  (press /)" : "filter";
  input.setAttribute("aria-label", "show only what contains these words");
  const count = document.createElement("span");
  count.setAttribute("role", "status");
  box.append(input, count);
  head.append(box);

  let texts = null;
  let opened = null;
  const folds = [...document.querySelectorAll("details")];
  const filter = () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    texts = texts || items.map((item) => item.textContent.toLowerCase());
    opened = opened || folds.map((fold) => fold.open);
    let found = 0;
    items.forEach((item, at) => {
      const shown = wanted.every((word) => texts[at].includes(word));
      item.hidden = !shown;
      found += shown;
    });
    folds.forEach((fold, at) => {
      const inside = fold.classList.contains("item") ? !fold.hidden : fold.querySelector(".item:not([hidden])");
      fold.open = wanted.length ? Boolean(inside) : opened[at];
    });
    if (!wanted.length) opened = null;
    count.textContent = wanted.length ? `${found} of ${items.length}` : "";
  };
  input.addEventListener("input", filter);
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement;
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape" && event.target === input) {
      input.value = "";
      filter();
    }
  });
})();
