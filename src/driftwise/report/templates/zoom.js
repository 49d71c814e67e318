"use strict";
// A figure fills the window when it is chosen; Escape, the button or another click closes it.
for (const button of document.querySelectorAll("button.zoom")) {
  button.addEventListener("click", () => {
    const dialog = document.createElement("dialog"), close = document.createElement("button");
    const frame = document.createElement("div"), image = button.querySelector("img").cloneNode();
    image.classList.add(button.closest(".tiles") ? "tile" : "whole");
    image.classList.toggle("chart", button.closest("figure.chart") !== null);
    dialog.className = "enlarged";
    close.textContent = "Close";
    frame.append(image);
    dialog.append(frame, close);
    dialog.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => { dialog.remove(); button.focus(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
