"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = Object.fromEntries(data.columns.map((name, index) => [name, index]));
const byId = id => document.getElementById(id);
const filters = new Map();
let sorted = null, rising = true, whole = false;
const FIRST = 300, FRONT = 40;

function element(name, text, attributes) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}
function drawn(name, attributes, title) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (title !== undefined) {
    const text = document.createElementNS("http://www.w3.org/2000/svg", "title");
    text.textContent = title;
    made.append(text);
  }
  return made;
}
const shown = value => value === null ? "-" : typeof value === "number" ? value.toLocaleString("en-US") : String(value);
const grouped = rows => name => [...new Set(rows.map(row => String(row[at[name]])))].sort();

for (const name of data.filters) {
  const values = grouped(data.rows)(name);
  if (values.length < 2) continue;
  const label = element("label", name), select = element("select", undefined, { "data-column": name });
  select.append(new Option("all", ""));
  values.forEach((value, index) => select.append(new Option(value === "null" ? "none" : value || "none", String(index + 1))));
  select.addEventListener("change", () => {
    const index = Number(select.value);
    if (index) filters.set(name, values[index - 1]); else filters.delete(name);
    update();
  });
  label.append(select);
  byId("filters").append(label);
}
function chosen() {
  const text = byId("search").value.toLowerCase();
  return data.rows.filter(row => (!text || row[at.model].toLowerCase().includes(text))
    && [...filters].every(([name, value]) => String(row[at[name]]) === value));
}
function order(rows) {
  if (sorted === null) return rows;
  const key = at[sorted], sign = rising ? 1 : -1;
  return [...rows].sort((a, b) => {
    const one = a[key], other = b[key];
    if (one === null || other === null) return (one === null) - (other === null);
    return sign * (one < other ? -1 : one > other ? 1 : 0);
  });
}
function table(rows) {
  const body = byId("body"), part = whole ? rows : rows.slice(0, FIRST);
  body.replaceChildren(...part.map(row => {
    const line = element("tr");
    data.columns.forEach((name, index) => {
      const value = row[index], cell = element("td", shown(value));
      if (typeof value === "number") cell.className = "number";
      if (name === "status") cell.className = "status-" + value;
      if (name === "model" || name === "error") { cell.className = "name"; cell.title = shown(value); }
      line.append(cell);
    });
    return line;
  }));
  byId("more").hidden = whole || rows.length <= FIRST;
}
function better(name) { return name === "accuracy" && !data.lower_accuracy ? -1 : 1; }
function front(points, xSign, ySign) {
  const ranked = [...points].sort((a, b) => xSign * (a.x - b.x) || ySign * (a.y - b.y));
  const best = [];
  let least = Infinity;
  for (const point of ranked) if (ySign * point.y < least) { best.push(point); least = ySign * point.y; }
  return best;
}
function named(row) {
  return data.names.map(name => row[at[name]]).filter(value => value !== null && value !== "").join(", ");
}
function plot(rows) {
  const x = byId("x").value, y = byId("y").value, log = byId("log").checked, svg = byId("plot");
  const points = rows.map(row => ({ x: row[at[x]], y: row[at[y]], row }))
    .filter(p => p.x !== null && p.y !== null && (!log || (p.x > 0 && p.y > 0)));
  svg.replaceChildren();
  byId("front").replaceChildren();
  if (!points.length) { svg.append(drawn("text", { x: 380, y: 200 })); svg.lastChild.textContent = "no row has both"; return; }
  const scale = (values, low, high) => {
    const f = log ? Math.log10 : v => v;
    let a = Math.min(...values.map(f)), b = Math.max(...values.map(f));
    if (a === b) { a -= 0.5; b += 0.5; }
    const place = v => low + (f(v) - a) / (b - a) * (high - low);
    const marks = Array.from({ length: 6 }, (_, i) => log ? 10 ** (a + (b - a) * i / 5) : a + (b - a) * i / 5);
    return { place, marks };
  };
  const sx = scale(points.map(p => p.x), 80, 870), sy = scale(points.map(p => p.y), 370, 20);
  const short = v => Math.abs(v) >= 10000 ? v.toExponential(1) : Math.abs(v) >= 100 ? v.toFixed(0) : v.toPrecision(3);
  for (const mark of sx.marks) {
    svg.append(drawn("line", { class: "grid", x1: sx.place(mark), x2: sx.place(mark), y1: 20, y2: 370 }));
    const text = drawn("text", { x: sx.place(mark), y: 388, "text-anchor": "middle" });
    text.textContent = short(mark);
    svg.append(text);
  }
  for (const mark of sy.marks) {
    svg.append(drawn("line", { class: "grid", x1: 80, x2: 870, y1: sy.place(mark), y2: sy.place(mark) }));
    const text = drawn("text", { x: 74, y: sy.place(mark) + 4, "text-anchor": "end" });
    text.textContent = short(mark);
    svg.append(text);
  }
  const best = front(points, better(x), better(y)), on = new Set(best);
  const told = p => `${named(p.row)}: ${x} ${shown(p.x)}, ${y} ${shown(p.y)}`;
  svg.append(drawn("polyline", { class: "line", points: best.map(p => `${sx.place(p.x)},${sy.place(p.y)}`).join(" ") }));
  for (const p of points) if (!on.has(p)) svg.append(drawn("circle", { class: "dot", cx: sx.place(p.x), cy: sy.place(p.y), r: 4 }, told(p)));
  for (const p of best) svg.append(drawn("circle", { class: "dot front", cx: sx.place(p.x), cy: sy.place(p.y), r: 5 }, told(p)));
  byId("front").append(...best.slice(0, FRONT).map(p => element("li", told(p))));
  if (best.length > FRONT) byId("front").append(element("li", `and ${best.length - FRONT} more`));
}
function update() {
  const rows = order(chosen());
  byId("count").textContent = `${rows.length} of ${data.rows.length} rows`;
  table(rows);
  plot(rows);
}
for (const name of data.columns) {
  const head = element("th", undefined, { scope: "col" }), button = element("button", name, { type: "button" });
  if (data.numbers.includes(name)) head.className = "number";
  button.addEventListener("click", () => {
    rising = sorted === name ? !rising : true;
    sorted = name;
    for (const other of byId("head").children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    update();
  });
  head.append(button);
  byId("head").append(head);
}
for (const [id, first] of [["x", data.axes[0]], ["y", data.axes[1]]]) {
  const select = byId(id);
  for (const name of data.numbers) select.append(new Option(name, name, name === first, name === first));
  select.addEventListener("change", update);
}
byId("log").addEventListener("change", update);
byId("search").addEventListener("input", update);
byId("more").addEventListener("click", () => { whole = true; update(); });
byId("reset").addEventListener("click", () => {
  filters.clear();
  byId("search").value = "";
  for (const select of byId("filters").querySelectorAll("select")) select.value = "";
  update();
});
byId("csv").addEventListener("click", () => {
  const safe = value => {
    let text = value === null ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
    return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  const lines = [data.columns, ...order(chosen())].map(row => row.map(safe).join(","));
  const link = element("a", "", { download: "sweep.csv" });
  link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  link.click();
  URL.revokeObjectURL(link.href);
});
update();
