// Texts, tables and lists of the page. Whatever others have named is set as text, never as HTML.

export const byId = (id) => document.getElementById(id);
export const orNothing = (value) => (value === null ? "" : String(value));
export const clock = (time) => new Date(time * 1000).toLocaleTimeString();

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A new element with this text. */
export function make(name, kind, text) {
  const made = document.createElement(name);
  if (kind !== "") made.className = kind;
  made.textContent = text;
  return made;
}

export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Makes the rows of a table's body say this; cells are [text, class]. */
export function fill(body, columns, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach(({ cells, name = "" }, index) => {
    const row = body.rows[index] ?? body.insertRow();
    row.className = name;
    cells.forEach(([text, kind = ""], column) => {
      const cell = row.cells[column] ?? row.insertCell();
      cell.dataset.label = columns[column];
      cell.className = text === "" ? "empty" : kind;
      setText(cell, text);
    });
  });
}

export function head(row, columns) {
  row.replaceChildren();
  for (const column of columns) {
    const cell = make("th", "", column);
    cell.scope = "col";
    row.append(cell);
  }
}

/** Pairs of a name and a value. */
export function facts(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => {
    const pair = document.createElement("div");
    pair.append(make("dt", "", name), make("dd", "", value));
    return pair;
  }));
}
