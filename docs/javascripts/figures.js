// A click on a figure opens it alone: there it can be enlarged, on a phone, too.
document.addEventListener("click", (event) => {
  const figure = event.target.closest(".md-content img");
  if (figure && !figure.closest("a")) location.href = figure.src;
});
