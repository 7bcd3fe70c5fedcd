// Search, site and filter apply to both the heatmap and the table.

const sites = DATA.sites.map((raw) => new Site(raw));
const search = document.getElementById("search");
const unsure = document.getElementById("unsure");
const siteChoice = document.getElementById("site");
const table = new ItemTable(document.getElementById("items"));
const heatmap = new Heatmap();

function update() {
  const site = sites[Number(siteChoice.value)];
  const items = chooseItems(site, search.value, unsure.checked);
  table.show(items, search.value);
  heatmap.show(site, items, search.value);
  const some = fold(search.value) || unsure.checked;
  document.getElementById("found").textContent = some
    ? `${integer(items.length)} of ${integer(site.items.length)} items`
    : "";
}

sites.forEach((_, index) => siteChoice.append(element("option", { value: index }, `permutation ${index}`)));
document.getElementById("site-choice").hidden = sites.length < 2;

// Several keystrokes within a frame cause one search.
let waiting = 0;
search.addEventListener("input", () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(update);
});
search.form.addEventListener("submit", (event) => event.preventDefault());
unsure.addEventListener("change", update);
siteChoice.addEventListener("change", update);
document.getElementById("order").addEventListener("change", (event) => {
  heatmap.order = event.target.value;
  heatmap.arrange();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => heatmap.draw());

function printing(on) {
  document.documentElement.classList.toggle("printing", on);
  table.printing(on);
  heatmap.draw();
}
window.addEventListener("beforeprint", () => printing(true));
window.addEventListener("afterprint", () => printing(false));

update();
