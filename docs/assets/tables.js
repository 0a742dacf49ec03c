// A box above every long table: rows that do not have all of its words are hidden.
for (const table of document.querySelectorAll(".md-typeset table")) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 15) continue;
  const box = document.createElement("input");
  box.type = "search";
  box.className = "table-filter";
  box.placeholder = `Filter ${rows.length} rows`;
  box.setAttribute("aria-label", box.placeholder);
  const texts = rows.map((row) => row.textContent.toLowerCase());
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/);
    rows.forEach((row, at) => (row.hidden = !words.every((word) => texts[at].includes(word))));
  });
  table.before(box);
}
