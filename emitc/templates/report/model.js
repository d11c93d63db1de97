"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") !== "ascending", sign = rising ? 1 : -1;
      const numbers = head.classList.contains("number");
      const value = row => {
        const text = row.cells[column].textContent;
        return numbers ? Number(text.replace(/[^0-9.-]/g, "")) || 0 : text;
      };
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      body.append(...[...body.rows].sort((a, b) => {
        const one = value(a), other = value(b);
        return sign * (one < other ? -1 : one > other ? 1 : 0);
      }));
    });
  });
}
