// Search, site and filter apply to both the heatmap and the table.

const sites = DATA.sites.map((raw) => new Site(raw));
const search = document.getElementById("search");
const unsure = document.getElementById("unsure");
const siteChoice = document.getElementById("site");
const levelChoice = document.getElementById("level");
const orderChoice = document.getElementById("order");
const table = new ItemTable(document.getElementById("items"));
const heatmap = new Heatmap();

function update() {
  const site = sites[Number(siteChoice.value)];
  const level = Number(levelChoice.value) / 100;
  // The slider may not have a step for the level of the file.
  table.level = Math.abs(level - DATA.level) < 5e-4 ? DATA.level : level;
  document.getElementById("level-shown").textContent = `${Math.round(1000 * table.level) / 10}%`;
  site.setLevel(table.level);
  const items = chooseItems(site, search.value, unsure.checked);
  const byItem = table.side === "items";
  table.show(byItem ? items : chooseLabels(site, search.value, unsure.checked), search.value);
  heatmap.show(site, items, search.value);
  const some = fold(search.value) || unsure.checked;
  const all = byItem ? site.items : site.labels;
  document.getElementById("found").textContent = some
    ? `${integer(table.items.length)} of ${integer(all.length)} ${table.side}`
    : "";
}

sites.forEach((_, index) => siteChoice.append(element("option", { value: index }, `permutation ${index}`)));
document.getElementById("site-choice").hidden = sites.length < 2;

// Several keystrokes within a frame cause one search.
let waiting = 0;
const soon = () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(update);
};
search.addEventListener("input", soon);
levelChoice.value = 100 * DATA.level;
levelChoice.addEventListener("input", soon);
search.form.addEventListener("submit", (event) => event.preventDefault());
unsure.addEventListener("change", update);
siteChoice.addEventListener("change", update);
document.getElementById("side").addEventListener("change", (event) => {
  table.build(event.target.value);
  update();
});
// Grouping is offered only where it brings confusable items closer together.
if (heatmap.order !== "grouped") orderChoice.querySelector("[value=grouped]").remove();
orderChoice.value = heatmap.order;
orderChoice.addEventListener("change", () => {
  heatmap.order = orderChoice.value;
  heatmap.arrange();
});
document.getElementById("rows").addEventListener("change", (event) => {
  heatmap.everything = event.target.value === "all";
  heatmap.arrange();
});
document.getElementById("colours").addEventListener("change", (event) => {
  heatmap.logarithmic = event.target.value === "log";
  heatmap.draw();
});
document.getElementById("save-table").addEventListener("click", () => saveTable(table));
document.getElementById("save-picture").addEventListener("click", () => savePicture(heatmap));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => heatmap.draw());

function printing(on) {
  document.documentElement.classList.toggle("printing", on);
  table.printing(on);
  heatmap.draw();
}
window.addEventListener("beforeprint", () => printing(true));
window.addEventListener("afterprint", () => printing(false));

update();
