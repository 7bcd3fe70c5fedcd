// The selected cell of the heatmap, by mouse, finger or keyboard, and the text that describes it.

const CANDIDATES = 6;
const JUMP = 10;

class Cursor {
  constructor(heatmap) {
    this.heatmap = heatmap;
    this.cell = null;
    this.canvas = document.getElementById("cursor");
    this.tip = document.getElementById("tip");
    const { plot } = heatmap;
    plot.addEventListener("pointermove", (event) => this.point(event));
    plot.addEventListener("pointerdown", (event) => this.point(event));
    plot.addEventListener("pointerleave", () => this.leave());
    plot.addEventListener("keydown", (event) => this.press(event));
    plot.addEventListener("focus", () => {
      if (!this.cell && heatmap.rows.length && plot.matches(":focus-visible")) this.toBest(0);
    });
    plot.addEventListener("blur", () => this.clear());
  }

  clear() {
    this.cell = null;
    this.mark();
  }

  point(event) {
    this.cell = this.at(event);
    this.mark();
  }

  leave() {
    if (document.activeElement === this.heatmap.plot) this.tip.hidden = true;
    else this.clear();
  }

  // The cell under the pointer, or null.
  at(event) {
    const { box, cols, rows, width, height, canvas } = this.heatmap;
    const bounds = canvas.getBoundingClientRect();
    const find = (offset, size, regular, total) => {
      const near = Math.floor(offset / size);
      if (near < regular) return near;
      return total > regular && Math.floor((offset - GAP) / size) === regular ? regular : -1;
    };
    const column = find(event.clientX - bounds.left - box.left, box.w, cols.length, width);
    const row = find(event.clientY - bounds.top - box.top, box.h, rows.length, height);
    return column < 0 || row < 0 || this.isCorner(row, column) ? null : { row, column };
  }

  // The corner where the unmatched column and the unused row meet is empty.
  isCorner(row, column) {
    return row >= this.heatmap.rows.length && column >= this.heatmap.cols.length;
  }

  press(event) {
    const { rows, width, height } = this.heatmap;
    if (!rows.length || event.altKey || event.metaKey) return;
    const { row, column } = this.cell ?? { row: 0, column: 0 };
    const moves = {
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      PageUp: [row - JUMP, column],
      PageDown: [row + JUMP, column],
      Home: [event.ctrlKey ? 0 : row, 0],
      End: [event.ctrlKey ? height - 1 : row, width - 1],
    };
    if (event.key === "Escape") this.clear();
    else if (event.key === "Enter") this.toBest(row);
    else if (event.key in moves) this.moveTo(...moves[event.key]);
    else return;
    event.preventDefault();
  }

  toBest(row) {
    const item = this.heatmap.rows[row];
    if (item) this.moveTo(row, this.heatmap.place.get(item.best));
  }

  moveTo(row, column) {
    const { width, height, plot } = this.heatmap;
    const within = (value, size) => Math.max(0, Math.min(value, size - 1));
    this.cell = { row: within(row, height), column: within(column, width) };
    if (this.isCorner(this.cell.row, this.cell.column)) this.cell.column -= 1;
    this.mark();
    document.getElementById("spoken").textContent = this.tip.textContent;
    // If the heatmap is taller than the screen, scroll to the tip.
    (plot.clientHeight > window.innerHeight ? this.tip : plot).scrollIntoView({ block: "nearest" });
  }

  mark() {
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.tip.hidden = !this.cell;
    if (!this.cell) return;
    const { box } = this.heatmap;
    const { row, column } = this.cell;
    const [x, y] = [this.heatmap.x(column), this.heatmap.y(row)];
    context.strokeStyle = cssColour("--ink");
    context.globalAlpha = 0.35;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(box.left, y + box.h / 2);
    context.lineTo(x, y + box.h / 2);
    context.moveTo(x + box.w / 2, box.top);
    context.lineTo(x + box.w / 2, y);
    context.stroke();
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, Math.max(box.w, 3) + 1, Math.max(box.h, 3) + 1);
    this.describe(row, column);
    this.placeTip(x, y);
  }

  describe(row, column) {
    const { rows, cols, site } = this.heatmap;
    const detail = document.getElementById("detail");
    if (row >= rows.length) {
      this.tip.textContent = `${stateName(cols[column])} is unused: ${percent(site.unused[cols[column]])}`;
      detail.replaceChildren(element("p", {}, this.tip.textContent));
      return;
    }
    const state = column < cols.length ? cols[column] : UNMATCHED;
    this.tip.textContent = `${rows[row].name} is ${stateName(state)}: ${site.describe(rows[row], state)}`;
    detail.replaceChildren(...this.candidates(rows[row], state));
  }

  candidates(item, state) {
    const { site, query } = this.heatmap;
    const listed = item.states.slice(0, CANDIDATES);
    if (!listed.includes(state)) listed.splice(CANDIDATES - 1, 1, state);
    const lines = listed.map((candidate) => {
      const value = element("span", { class: "number" }, site.describe(item, candidate));
      const pair = element("span", { class: "pair" }, named(stateName(candidate), query), value);
      const chosen = candidate === state ? { class: "chosen" } : {};
      return element("li", chosen, pair, bar(item.probs[item.states.indexOf(candidate)] ?? 0));
    });
    const heading = element("h3", {}, named(item.name, query), " may be");
    const more = item.states.filter((candidate) => !listed.includes(candidate)).length;
    const rest = more ? [element("p", { class: "note" }, `and ${integer(more)} less probable`)] : [];
    return [heading, element("ol", {}, ...lines), ...rest];
  }

  placeTip(x, y) {
    const { plot, box } = this.heatmap;
    const left = Math.max(0, Math.min(x + box.w + 10, plot.clientWidth - this.tip.offsetWidth));
    const above = y - this.tip.offsetHeight - 8;
    this.tip.style.transform = `translate(${left}px, ${above >= 0 ? above : y + box.h + 8}px)`;
  }
}
