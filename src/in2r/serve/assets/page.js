"use strict";
// What is asked lies in the address (text, item, side, conditions, offset), except an image, which history refers to by number.
const PAGE = 24;
const find = (id) => document.getElementById(id);
const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};
const show = (element, wanted) => { element.hidden = !wanted; };

let info = null;
let asked = { text: "", like: "", image: 0, side: "", where: [], offset: 0 };
let answer = null;
let opened = -1;
let running = null;
const images = [null]; // of this load of the page; history's states name them by number

// --- the address

const read = () => {
  const given = new URLSearchParams(location.search);
  const offset = Number(given.get("offset"));
  return { text: given.get("q") ?? "", like: given.get("like") ?? "", image: history.state?.image ?? 0, side: given.get("side") ?? "",
    where: given.getAll("where"), offset: Number.isInteger(offset) && offset > 0 ? offset : 0 };
};
const parameters = (names) => {
  const given = new URLSearchParams();
  for (const [name, value] of names) if (value) given.append(name, value);
  for (const condition of asked.where) given.append("where", condition);
  return given;
};
const go = (change) => {
  asked = { ...asked, offset: 0, ...change };
  const given = parameters([["q", asked.text], ["like", asked.like], ["side", asked.side], ["offset", asked.offset]]).toString();
  history.pushState({ image: asked.image }, "", given ? `/?${given}` : "/");
  search();
};

// --- the server

const request = async (address, options) => {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.status === 401 && !address.startsWith("/api/login")) {
    if (!find("login").open) find("login").showModal();
    throw new Error("This server asks for a token.");
  }
  if (response.status === 204) return null;
  const body = await response.json().catch(() => ({ error: `The server answers with ${response.status}.` }));
  if (!response.ok) throw new Error(body.error);
  return body;
};
const able = (kind) => info.indexes.some((one) => one[kind].works);
const picture = (item, side) => `/thumb/${encodeURIComponent(item)}?side=${side}&started=${info?.started}`;
const ask = (signal) => {
  const rest = parameters([["side", asked.side], ["offset", asked.offset], ["k", PAGE]]);
  if (asked.image) return request(`/api/search?${rest}`, { method: "POST", body: images[asked.image], signal });
  if (asked.like) return request(`/api/items/${encodeURIComponent(asked.like)}/similar?${rest}`, { signal });
  rest.set("q", asked.text);
  return request(`/api/search?${rest}`, { signal });
};

const search = async () => {
  running?.abort();
  running = new AbortController();
  const own = running;
  find("detail").close();
  describe();
  show(find("error"), false);
  const wanted = asked.text.trim() || asked.like || (asked.image && images[asked.image]);
  if (!wanted) {
    answer = null;
    render();
    return;
  }
  show(find("empty"), false);
  find("grid").classList.add("waiting");
  find("grid").ariaBusy = "true";
  find("status").textContent = "Searching …";
  find("how").textContent = "";
  try {
    answer = await ask(own.signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    answer = null;
    find("error").textContent = error.message;
    show(find("error"), true);
  }
  if (own === running) render();
};

// --- what is shown

const describe = () => {
  find("text").value = asked.text;
  const image = asked.image ? images[asked.image] : null;
  show(find("query-image"), image || asked.like);
  const shown = find("query-picture");
  if (shown.src.startsWith("blob:")) URL.revokeObjectURL(shown.src);
  if (image) shown.src = URL.createObjectURL(image);
  else if (asked.like) shown.src = picture(asked.like, asked.side);
  find("query-name").textContent = image ? image.name : `like ${asked.like}`;
  find("text").placeholder = image || asked.like ? "" : able("image_queries") ? "Search by text, or drop an image" : "Search by text";
  find("filters").replaceChildren(...asked.where.map((condition) => make("button", { type: "button",
    textContent: condition.replace("=", ": "), ariaLabel: `remove the condition ${condition}`,
    onclick: () => go({ where: asked.where.filter((other) => other !== condition) }) })));
  show(find("filters"), asked.where.length);
  for (const button of find("sides").children) button.ariaChecked = String(button.dataset.side === asked.side);
  document.title = `${asked.text || (image ? image.name : asked.like) || "IN²R"} · search`;
};
const index = () => info?.indexes.find((one) => one.side === asked.side);
const captions = (item) => item.columns[index()?.caption_column] ?? [];
const face = (item, side) => {
  if (!item.picture) return make("p", { className: "words", dir: "auto", textContent: captions(item)[0] ?? item.id });
  return make("img", { src: picture(item.id, side), alt: captions(item)[0] ?? item.id, loading: "lazy", decoding: "async" });
};
const tile = (item, place) => {
  const said = item.picture ? captions(item)[0] ?? "" : "";
  const button = make("button", { type: "button", className: "tile", onclick: () => open(place) },
    make("div", { className: "picture" }, face(item, answer.side)),
    make("div", { className: "text" },
      ...(said ? [make("div", { className: "caption", dir: "auto", textContent: said })] : []),
      make("div", { className: "meta" }, make("span", { textContent: item.id }), make("b", { textContent: item.score.toFixed(3) }))));
  const like = make("button", { type: "button", className: "like", textContent: "similar", ariaLabel: `find items similar to ${item.id}`,
    onclick: () => similar(item) });
  return make("li", {}, button, like);
};
const render = () => {
  const grid = find("grid");
  grid.classList.remove("waiting");
  grid.ariaBusy = "false";
  const items = answer?.items ?? [];
  grid.replaceChildren(...items.map(tile));
  show(find("empty"), !answer && find("error").hidden);
  const first = items.length ? items[0].rank : 0;
  const last = items.length ? items.at(-1).rank : 0;
  find("how").textContent = answer ? answer.how : "";
  find("status").textContent = !answer ? "" : items.length ? `${first} to ${last}` : "Nothing found.";
  show(find("pages"), answer && (answer.more || answer.offset));
  find("place").textContent = items.length ? `${first} to ${last}` : "";
  find("before").disabled = !answer?.offset;
  find("after").disabled = !answer?.more || last + PAGE > (index()?.furthest ?? 0);
};
const similar = (item) => go({ text: "", image: 0, like: item.id, side: answer.side, where: [] });
const open = (place) => {
  const item = answer?.items[place];
  if (!item) return;
  opened = place;
  const detail = find("detail");
  detail.querySelector(".picture").replaceChildren(face(item, answer.side));
  find("detail-rank").textContent = `${item.rank}.`;
  find("detail-score").textContent = `score ${item.score.toFixed(4)}`;
  find("detail-id").textContent = item.id;
  find("columns").replaceChildren(...Object.entries(item.columns).filter(([, values]) => values.length).flatMap(([name, values]) => [
    make("dt", { textContent: name }),
    ...values.map((value) => make("dd", {}, make("span", { dir: "auto", textContent: value }),
      ...(name === index()?.caption_column ? [] : [make("button", { type: "button", textContent: "only these",
        ariaLabel: `only items of ${name} ${value}`, onclick: () => go({ where: [...new Set([...asked.where.filter((condition) => !condition.startsWith(`${name}=`)), `${name}=${value}`])] }) })]))),
  ]));
  find("left").disabled = place === 0;
  find("right").disabled = place === answer.items.length - 1;
  if (!detail.open) detail.showModal();
};

// --- images

const take = (file) => {
  if (!file) return;
  if (info && file.size > info.image_bytes) {
    find("error").textContent = `This image has more than ${(info.image_bytes / 2 ** 20).toFixed()} MiB; take a smaller one.`;
    show(find("error"), true);
    return;
  }
  images.push(file);
  go({ text: "", like: "", image: images.length - 1, where: [] });
};
let depth = 0;
const carries = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
addEventListener("dragenter", (event) => { if (carries(event)) { depth += 1; show(find("drop"), true); } });
addEventListener("dragleave", (event) => { if (carries(event) && --depth <= 0) { depth = 0; show(find("drop"), false); } });
addEventListener("dragover", (event) => { if (carries(event)) event.preventDefault(); });
addEventListener("drop", (event) => {
  if (!carries(event)) return;
  event.preventDefault();
  depth = 0;
  show(find("drop"), false);
  take(event.dataTransfer.files[0]);
});
addEventListener("paste", (event) => take([...event.clipboardData.files].find((file) => file.type.startsWith("image/"))));
find("file").addEventListener("change", (event) => { take(event.target.files[0]); event.target.value = ""; });

// --- controls

find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = find("text").value;
  if (text.trim()) go({ text, like: "", image: 0 });
  else if (!asked.like && !asked.image) go({ text: "" });
});
find("home").addEventListener("click", (event) => {
  event.preventDefault();
  go({ text: "", like: "", image: 0, where: [] });
});
find("remove").addEventListener("click", () => { go({ like: "", image: 0 }); find("text").focus(); });
find("before").addEventListener("click", () => { go({ offset: Math.max(0, asked.offset - PAGE) }); scrollTo(0, 0); });
find("after").addEventListener("click", () => { go({ offset: asked.offset + PAGE }); scrollTo(0, 0); });
find("close").addEventListener("click", () => find("detail").close());
find("left").addEventListener("click", () => open(opened - 1));
find("right").addEventListener("click", () => open(opened + 1));
find("similar").addEventListener("click", () => similar(answer.items[opened]));
find("detail").addEventListener("click", (event) => { if (event.target === event.currentTarget) event.target.close(); });
find("detail").addEventListener("close", () => { find("grid").querySelectorAll(".tile")[opened]?.focus(); });
addEventListener("popstate", () => { asked = { ...read(), side: read().side || info?.indexes[0].side || "" }; search(); });

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || find("login").open) return;
  const writing = event.target.matches?.("input:not([type=file])");
  if (find("detail").open) {
    if (event.key === "Escape") { event.preventDefault(); find("detail").close(); }
    if (event.key === "ArrowLeft") open(opened - 1);
    if (event.key === "ArrowRight") open(opened + 1);
    return;
  }
  if (event.key === "/" && !writing) {
    event.preventDefault();
    find("text").focus();
    find("text").select();
  } else if (event.key === "Escape" && writing) {
    event.preventDefault();
    event.target.blur();
  } else if (event.key.startsWith("Arrow") && !(writing && event.key !== "ArrowDown")) move(event);
});
const move = (event) => {
  const tiles = [...find("grid").querySelectorAll(".tile")];
  if (!tiles.length || event.target.closest?.("#sides")) return;
  event.preventDefault();
  const at = tiles.indexOf(document.activeElement);
  const top = tiles[0].getBoundingClientRect().top;
  const columns = tiles.filter((one) => one.getBoundingClientRect().top === top).length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  if (at < 0) tiles[0].focus();
  else if (at + step < 0 && event.key === "ArrowUp") find("text").focus();
  else tiles[at + step]?.focus();
};

// --- start

find("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  login(find("token").value);
});
const login = async (token) => {
  show(find("login-error"), false);
  try {
    await request("/api/login", { method: "POST", body: token.trim() });
  } catch (error) {
    if (!find("login").open) find("login").showModal();
    find("login-error").textContent = error.message;
    show(find("login-error"), true);
    return;
  }
  find("token").value = "";
  find("login").close();
  start();
};
const start = async () => {
  asked = read();
  try {
    info = await request("/api/info");
  } catch (error) {
    find("error").textContent = error.message;
    show(find("error"), true);
    return;
  }
  const [first] = info.indexes;
  if (!info.indexes.some((one) => one.side === asked.side)) asked.side = first.side;
  show(find("sides"), info.indexes.length > 1);
  find("sides").replaceChildren(...info.indexes.map((one) => make("button", { type: "button", role: "radio", textContent: one.side,
    onclick: () => go({ side: one.side, like: "", where: [] }) })));
  for (const [place, button] of [...find("sides").children].entries()) button.dataset.side = info.indexes[place].side;
  show(find("pick"), able("image_queries"));
  find("served").textContent = `Search ${info.indexes.map((one) => `${one.count.toLocaleString("en")} ${one.side}`).join(" and ")}`;
  const hints = [["/", "goes to the search box, arrows go through results, Enter opens one, Esc closes it"]];
  find("hints").replaceChildren(
    make("li", { textContent: able("text_queries") ? "Type what you look for." : `Texts cannot be asked: ${first.text_queries.why}` }),
    make("li", { textContent: able("image_queries") ? "Or drop, paste or choose an image." : `Images cannot be asked: ${first.image_queries.why}` }),
    ...hints.map(([key, said]) => make("li", {}, make("kbd", { textContent: key }), ` ${said}`)));
  await search();
};
const fragment = location.hash.startsWith("#token=") ? decodeURIComponent(location.hash.slice(7)) : "";
if (fragment) {
  history.replaceState(history.state, "", location.pathname + location.search);
  login(fragment);
} else start();
