"use strict";
(() => {
  const tools = document.querySelector(".tools");
  const slices = [...document.querySelectorAll("[data-slice]")];
  const slider = tools.querySelector("input");
  const buttons = [...tools.querySelectorAll("button")];

  function show(position) {
    slices.forEach((slice, number) => { slice.hidden = number !== position; });
    tools.querySelector("output").textContent = slices[position].dataset.slice;
  }

  slider.addEventListener("input", () => show(Number(slider.value)));
  for (const button of buttons) {
    button.addEventListener("click", () => {
      document.body.dataset.window = button.dataset.window;
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
    });
  }
  // Some browsers restore a slider's position after a reload, but not what it shows.
  show(Number(slider.value));
  tools.hidden = false;
})();
