"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const descending = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.sort;
    const numeric = !head.classList.contains("name");
    const compare = (a, b) => {
      if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === "");
      const order = numeric ? key(a) - key(b) : key(a).localeCompare(key(b));
      return descending ? -order : order;
    };
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
  }));
}
