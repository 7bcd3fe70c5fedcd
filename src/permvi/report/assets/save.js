// What is shown, as files: the table as CSV and the heatmap as a picture.

// How spreadsheets recognise a formula; tables.py has the same signs.
const FORMULA = /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/;

function saveTable(table) {
  const alone = SIDES[table.side].alone.toLowerCase();
  const [one, other] = table.side === "items" ? ["item", "label"] : ["label", "item"];
  const level = Math.round(1000 * table.level) / 10;
  const header = [one, `best_${other}`, "probability", "one_to_one", "runner_up", "runner_up_probability", `set_${level}`, `p_${alone}`];
  const rows = table.sorted().map((item) => [
    item.name,
    item.call(item.best),
    item.probability,
    item.call(item.choice),
    item.states.length > 1 ? item.call(item.states[1]) : "",
    item.second,
    item.states.slice(0, item.size).map(item.call).join("; "),
    item.unmatched,
  ]);
  const text = [header, ...rows].map((cells) => cells.map(csvCell).join(",")).join("\n");
  save(new Blob([`${text}\n`], { type: "text/csv;charset=utf-8" }), `${table.side}.csv`);
}

function csvCell(value) {
  if (typeof value === "number") return String(value);
  const text = FORMULA.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// On the ground of the page: names would not show on another one.
function savePicture(heatmap) {
  const { canvas } = heatmap;
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d");
  context.fillStyle = cssColour("--card");
  context.fillRect(0, 0, copy.width, copy.height);
  context.drawImage(canvas, 0, 0);
  copy.toBlob((blob) => save(blob, "probabilities.png"), "image/png");
}

function save(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  // The browser has taken hold of it once this turn is over.
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
