/* Finds what a query means, and shows it: in the dialog that search.js opens, and below the form of
   search.html and of the page for lost addresses. The index and MiniSearch are scripts that are
   loaded at the first letter; scripts, unlike fetched data, also load from a folder (file://). */
(() => {
  "use strict";
  const here = document.currentScript.src;
  const root = new URL("../", here).href;
  const HAN = /^\p{Script=Han}/u;
  const WORD = /\p{Script=Han}+|(?:(?!\p{Script=Han})[\p{L}\p{N}_])(?:(?!\p{Script=Han})[\p{L}\p{N}_.\-'’])*/gu;
  const STOP = new Set(("a an and are as at be between by can could did do does for from get give had has have how " +
    "i if in into is it its me my of on one or over should so still than that the their them then there these " +
    "they this to use used using was we were what when where which while who why will with would you your " +
    "的 了 和 与 是 在 中 有 吗 什么 如何 怎么 怎样 哪些 为什么").split(" "));
  const KINDS = { s: "section", c: "claim", x: "cell", f: "figure", p: "page", w: "question" };
  // A page before its cells: what an entry of each kind counts.
  const WEIGHTS = { p: 1.6, c: 2.1, s: 1, f: 0.8, x: 0.6, w: 0.3 };

  /* ---------------------------------------------------------------- words */

  // British and American spelling, endings: the same on both sides, so being crude does no harm.
  const stem = (word) => {
    if (word.length < 4 || /[\d_]/.test(word)) return word;
    let short = word.replace(/['’]s?$/, "").replace(/iz/g, "is").replace(/our/g, "or");
    short = short.replace(/(?:isation|iser|ised|ising|ise)s?$/, "is").replace(/ies$/, "y")
      .replace(/(?<=[^s])s$/, "");
    if (short.length > 5) short = short.replace(/(?:ing|ed|er|ly|ion)$/, "");
    // clipping, clipped: clip; hyperparameter names keep a double letter that is their own
    short = short.replace(/([bdgmnpt])\1$/, "$1");
    return short.length > 3 ? short.replace(/e$/, "") : short;
  };

  /* An API name is found by itself, by each of its ends, and by its words:
     nn.Module gives nn.module, module, nn; DistributedDataParallel its three words too. */
  const forms = (word) => {
    const whole = word.replace(/[.\-'’]+$/, "");
    const lower = whole.toLowerCase();
    const ends = [], parts = [];
    if (/[._\-]/.test(whole) || /\p{Ll}\p{Lu}/u.test(whole)) {
      const names = lower.split(".").filter(Boolean);
      for (let from = names.length > 1 ? 1 : 0; from < names.length; from += 1)
        ends.push(names.slice(from).join("."));
      if (names.at(-1)?.endsWith("_")) ends.push(names.at(-1).replace(/_+$/, ""));
      for (const part of whole.split(/[._\-]+|(?<=[\p{Ll}\d])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})/u))
        if (part) parts.push(stem(part.toLowerCase()));
    }
    return { whole: ends.length ? lower : stem(lower), ends: ends.filter((e) => e !== lower), parts };
  };

  const pairs = (han) => {
    const signs = [...han];
    return signs.length < 2 ? signs : signs.slice(1).map((sign, i) => signs[i] + sign);
  };

  const termsOf = (word) => {
    if (HAN.test(word)) return [...new Set([...pairs(word), ...word])];
    const { whole, ends, parts } = forms(word);
    return [...new Set([whole, ...ends, ...parts])];
  };

  const tokenize = (text) => (text.match(WORD) ?? []).flatMap(termsOf);

  /* ---------------------------------------------------------------- the index */

  const script = (address) => new Promise((done, fail) => {
    const element = document.createElement("script");
    element.src = address;
    element.onload = done;
    element.onerror = () => { element.remove(); fail(new Error(address)); };
    document.head.append(element);
  });

  let ready = null;
  const load = () => (ready ??= Promise.all([
    script(new URL("minisearch.js", here).href), script(new URL("search-index.js", root).href),
  ]).then(build).catch((error) => { ready = null; throw error; }));

  const build = async () => {
    const { pages, waiting, words } = window.bookSearchIndex;
    const docs = [];
    pages.forEach((page, number) => {
      const add = (kind, anchor, title, text, names = "") => docs.push({
        id: docs.length, page: number, kind, anchor, title, text, names, href:
          `${root}${page.page}.html${anchor ? `#${anchor}` : ""}` });
      const at = {};
      for (const [name, ...cells] of page.names)
        for (const cell of cells) (at[`cell-${cell}`] ??= []).push(name);
      add("p", "", page.title, page.text, page.asked);
      let heading = "";
      for (const [kind, anchor, title, text] of page.entries) {
        if (kind === "s") heading = title;
        add(kind, anchor, kind === "x" ? heading : title, text,
          kind === "c" ? anchor.replace("claim-", "") : (at[anchor] ?? []).join(" "));
      }
      if (page.page === "questions")
        for (const asked of waiting) add("w", "", asked, "This question waits for its page.");
    });
    const engine = new MiniSearch({
      fields: ["title", "names", "text"], tokenize, processTerm: (term) => term,
      searchOptions: {
        tokenize: (text) => [text], boost: { title: 3, names: 2.5 },
        // What a page is about weighs less in a cell, whose title is its section's.
        boostDocument: (id) => WEIGHTS[docs[id].kind] * (pages[docs[id].page].code ? 1 : 0.45),
      },
    });
    await engine.addAllAsync(docs, { chunkSize: 100 }); // lets the reader go on typing
    return { pages, docs, words, engine };
  };

  /* ---------------------------------------------------------------- a query */

  const queryWords = (query) => {
    const found = (query.match(WORD) ?? []).map((word) => word.replace(/[.\-'’]+$/, ""));
    const telling = found.filter((word) => !STOP.has(word.toLowerCase()));
    return telling.length ? telling : found;
  };

  // All ways to read one word of the query: what to look up, and what finding it counts.
  const readings = (book, word, last) => {
    const all = (list) => ({ combineWith: "AND", queries: list });
    if (!HAN.test(word)) {
      const { whole, ends, parts } = forms(word);
      // Typed so far; a stem of what is typed need not start the word's own stem.
      const start = last && { combineWith: "OR", queries: [
        { queries: [whole], prefix: true }, { queries: [word.toLowerCase()], prefix: true }] };
      return [
        [whole, ends.length ? 3 : 1],
        ...(start ? [[start, ends.length ? 1.5 : 0.9]] : []),
        ...ends.map((end, i) => [end, 1.4 / (i + 1)]),
        ...(parts.length > 1 ? [[all(parts), 0.8, "loose"]] : []),
      ];
    }
    const found = [[all(pairs(word)), 1.3]];
    // The pages are in English: known Chinese words are looked up by their English ones as well.
    for (let from = 0; from < word.length; from += 1)
      for (let to = word.length; to > from; to -= 1) {
        const english = book.words[word.slice(from, to)];
        if (!english) continue;
        for (const one of [english].flat()) {
          const many = one.match(WORD);
          if (many.length > 1) found.push([all(many.map((name) => forms(name).whole)), 1]);
          else found.push(...readings(book, many[0], false));
        }
        from = to - 1;
        break;
      }
    if (word.length > 2) found.push([{ combineWith: "OR", queries: pairs(word) }, 0.35]);
    return found;
  };

  const look = (book, word, last) => {
    const best = new Map();
    const note = (query, weight, options, loose) => {
      for (const hit of book.engine.search(query, options)) {
        const old = best.get(hit.id);
        const terms = old?.terms ?? new Set();
        // Where the name itself stands, its single words are not marked.
        if (!loose || !terms.size) hit.terms.forEach((term) => terms.add(term));
        best.set(hit.id, { score: Math.max(old?.score ?? 0, hit.score * weight), terms });
      }
    };
    for (const [query, weight, loose] of readings(book, word, last)) note(query, weight, {}, loose);
    if (!best.size && word.length > 3 && !HAN.test(word)) { // a slip: two letters changed places?
      for (let at = 1; at < word.length; at += 1)
        note(forms(word.slice(0, at - 1) + word[at] + word[at - 1] + word.slice(at + 1)).whole, 0.6);
      if (!best.size) note(forms(word).whole, 0.5, { fuzzy: 0.25, prefix: true });
    }
    return best;
  };

  /* Pages with their best entries, best page first. A page's place is that of its best entry, with
     a share of what the page itself and its further entries get. */
  const search = (book, query) => {
    const words = queryWords(query);
    const total = new Map();
    words.forEach((word, number) => {
      const last = number === words.length - 1 && !/\s$/.test(query);
      for (const [id, { score, terms }] of look(book, word, last)) {
        const one = total.get(id) ?? { id, score: 0, words: new Set(), terms: new Set() };
        one.score += score;
        one.words.add(number);
        terms.forEach((term) => one.terms.add(term));
        total.set(id, one);
      }
    });
    const groups = new Map();
    for (const hit of total.values()) {
      hit.score *= hit.words.size / words.length;
      const doc = book.docs[hit.id];
      if (doc.kind === "c" && words.length > 2 && hit.words.size === words.length)
        hit.score *= 1.5; // someone types the claim itself
      const group = groups.get(doc.page)
        ?? { page: doc.page, own: null, hits: [], words: new Set(), most: 0, score: 0 };
      if (doc.kind === "p") group.own = hit; else group.hits.push(hit);
      hit.words.forEach((number) => group.words.add(number));
      group.most = Math.max(group.most, hit.words.size);
      groups.set(doc.page, group);
    }
    const most = Math.max(0, ...[...groups.values()].map((group) => group.words.size));
    for (const group of groups.values()) {
      if (group.words.size < most * 0.6) {
        groups.delete(group.page);
        continue;
      }
      group.hits = group.hits.filter((hit) => hit.words.size >= group.most * 0.6)
        .sort((a, b) => b.score - a.score || a.id - b.id);
      const own = group.own?.score ?? 0, scores = group.hits.slice(0, 5).map((hit) => hit.score);
      group.score = (Math.max(own, scores[0] ?? 0) + 0.4 * own
        + 0.08 * scores.reduce((sum, one) => sum + one, 0)) * (group.words.size / words.length) ** 2;
    }
    const pages = [...groups.values()].sort((a, b) => b.score - a.score || a.page - b.page);
    return { pages, count: pages.reduce((sum, one) => sum + one.hits.length + 1, 0) };
  };

  /* ---------------------------------------------------------------- what is shown */

  const element = (name, className, ...children) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children.filter((child) => child !== null));
    return made;
  };

  // Where the words stand that were found: [from, to, how many terms].
  const places = (text, terms) => {
    const found = [];
    for (const match of text.matchAll(WORD)) {
      const word = match[0];
      if (HAN.test(word)) {
        [...word].forEach((sign, i) => {
          const near = [word.slice(i - 1, i + 1), word.slice(i, i + 2), word.length === 1 ? sign : ""];
          if (near.some((pair) => terms.has(pair)))
            found.push([match.index + i, match.index + i + 1, sign]);
        });
      } else {
        const hit = termsOf(word).find((term) => terms.has(term)); // the longest comes first
        if (hit) found.push([match.index, match.index + word.replace(/[.\-'’]+$/, "").length, hit]);
      }
    }
    return found;
  };

  const marked = (text, terms) => {
    const out = [];
    let at = 0;
    for (const [from, to] of places(text, terms)) {
      if (from > at) out.push(text.slice(at, from));
      const last = out.at(-1);
      if (from === at && last?.nodeName === "MARK") last.append(text.slice(from, to));
      else out.push(element("mark", "", text.slice(from, to)));
      at = to;
    }
    out.push(text.slice(at));
    return out;
  };

  // The stretch of a text that holds the most different words that were found.
  const LENGTH = 170;
  const excerpt = (text, terms) => {
    if (text.length <= LENGTH) return text;
    const found = places(text, terms);
    let best = 0, most = 0;
    found.forEach(([from], i) => {
      const inside = found.slice(i).filter(([, to]) => to <= from + LENGTH - 40);
      const many = new Set(inside.map(([, , term]) => term)).size;
      if (many > most) [best, most] = [from, many];
    });
    if (best + 60 < LENGTH) best = 0;
    let from = best === 0 ? 0 : text.lastIndexOf(" ", Math.max(0, best - 30)) + 1;
    // From the start of a sentence, where one starts not far before.
    const stop = text.lastIndexOf(". ", best);
    if (best && stop > best - 90 && stop > 0) from = stop + 2;
    let to = text.indexOf(" ", from + LENGTH);
    if (to < 0) to = text.length;
    return `${from ? "… " : ""}${text.slice(from, to)}${to < text.length ? " …" : ""}`;
  };

  // The line of code that holds the most of what was found.
  const line = (code, terms) => {
    const lines = code.split("\n").filter((one) => one.trim());
    const many = lines.map((one) => [...new Set(places(one, terms).map((place) => place[2]))]
      .reduce((sum, term) => sum + term.length, 0)); // a long name tells more than a short one
    const best = many.indexOf(Math.max(...many));
    return (lines[best] ?? "").trim().slice(0, LENGTH);
  };

  const entry = (book, hit) => {
    const doc = book.docs[hit.id];
    const link = element("a", `book-hit book-hit-${KINDS[doc.kind]}`);
    link.href = doc.href;
    const kind = { c: `claim: ${doc.title}`, x: doc.anchor.replace("-", " ") }[doc.kind] ?? KINDS[doc.kind];
    link.append(element("span", "book-hit-kind", kind), " ");
    if (doc.kind === "x") link.append(element("code", "", ...marked(line(doc.text, hit.terms), hit.terms)));
    else {
      if (doc.kind !== "c" && doc.title)
        link.append(element("span", "book-hit-title", ...marked(doc.title, hit.terms)), " ");
      link.append(element("span", "book-hit-text", ...marked(excerpt(doc.text, hit.terms), hit.terms)));
    }
    return link;
  };

  const pageEntry = (book, group) => {
    const page = book.pages[group.page];
    const terms = new Set(group.own?.terms ?? []);
    group.hits.slice(0, 3).forEach((hit) => hit.terms.forEach((term) => terms.add(term)));
    const link = element("a", "book-hit book-hit-page");
    link.href = `${root}${page.page}.html`;
    const asked = group.own && [...page.asked.matchAll(/\p{Script=Han}/gu)].length
      && places(page.asked, group.own.terms).some(([from]) => HAN.test(page.asked[from]))
      ? page.asked.replace(/^.*?[?]\s+(?=[^?]*\p{Script=Han})/u, "") : "";
    link.append(element("span", "book-hit-title", ...marked(page.title, terms)), " ",
      element("span", "book-hit-part", page.part), " ",
      ...(asked ? [element("span", "book-hit-asked", ...marked(asked, terms)), " "] : []),
      element("span", "book-hit-text", ...marked(excerpt(page.text, terms), terms)));
    if (asked) link.querySelector(".book-hit-asked").lang = "zh";
    return link;
  };

  const HINT = "Type an API name (clip_grad_norm_), the words of a claim, or a question, in English or Chinese.";

  /* Have a form search as one types, and show what it found below it.
     `pages` and `parts` are how many pages, and entries of the first page, are shown. */
  const attach = (form, output, pages, parts, more) => {
    const input = form.querySelector("input[type=search]");
    const status = element("p", "book-search-status");
    status.setAttribute("role", "status");
    const list = element("div", "book-search-list");
    output.append(status, list);
    status.textContent = HINT;

    let turn = 0;
    const show = async () => {
      const query = input.value, mine = ++turn;
      if (!queryWords(query).length) {
        list.replaceChildren();
        status.textContent = HINT;
        return;
      }
      let book;
      if (!ready) status.textContent = "Loading the index …";
      try {
        book = await load();
      } catch {
        status.textContent = "The index did not load. Is there a connection? The list of questions may help.";
        return;
      }
      if (mine !== turn) return; // more was typed meanwhile
      const { pages: found, count } = search(book, query);
      const groups = found.slice(0, pages).map((group, number) => {
        const items = group.hits.slice(0, number ? Math.ceil(parts / 2) : parts)
          .map((hit) => element("li", "", entry(book, hit)));
        return element("li", "", pageEntry(book, group),
          items.length ? element("ul", "", ...items) : null);
      });
      list.replaceChildren(element("ol", "", ...groups));
      status.textContent = found.length
        ? `${count} result${count > 1 ? "s" : ""} on ${found.length} page${found.length > 1 ? "s" : ""}`
        : `Nothing found for “${query.trim()}”.`;
      if (more && found.length) {
        const all = element("a", "book-hit book-hit-all", "All results on a page of their own");
        all.href = `${root}search.html?q=${encodeURIComponent(query.trim())}`;
        list.append(all);
      }
    };
    input.addEventListener("input", show);
    input.addEventListener("focus", () => { load().catch(() => {}); }, { once: true });

    const links = () => [...list.querySelectorAll("a")];
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      show().then(() => {
        if (more) links()[0]?.click();
        else links()[0]?.focus();
      });
    });
    // Arrows go through the results, a letter goes back to the field.
    output.parentElement.addEventListener("keydown", (event) => {
      const all = links(), at = all.indexOf(document.activeElement);
      if (event.key === "ArrowDown" && (at >= 0 || document.activeElement === input)) {
        (all[at + 1] ?? all[at])?.focus();
      } else if (event.key === "ArrowUp" && at >= 0) {
        (at ? all[at - 1] : input).focus();
      } else if (at >= 0 && event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey
                 && event.key !== " ") {
        input.focus(); // the letter goes there
        return;
      } else return;
      event.preventDefault();
    });
    return { input, show };
  };

  /* ---------------------------------------------------------------- the dialog */

  let dialog = null;
  const toggle = () => {
    if (dialog?.open) return dialog.close();
    document.querySelectorAll("dialog[open]").forEach((one) => one.close());
    if (!dialog) {
      const input = element("input");
      Object.assign(input, { type: "search", name: "q", autocomplete: "off", spellcheck: false,
        placeholder: "API name, claim, question" });
      input.setAttribute("aria-label", "Search the book");
      input.setAttribute("autocapitalize", "off");
      const close = element("button", "book-search-close", "Close");
      close.type = "button";
      const form = element("form", "book-search-form", input, close);
      form.setAttribute("role", "search");
      const output = element("div", "book-search-results");
      dialog = element("dialog", "book-search", form, output);
      dialog.setAttribute("aria-label", "Search");
      close.addEventListener("click", () => dialog.close());
      dialog.addEventListener("keydown", (event) => { // at once; the field would only be emptied
        if (event.key !== "Escape") return;
        event.preventDefault();
        dialog.close();
      });
      dialog.addEventListener("click", (event) => {
        if (event.target === dialog || event.target.closest("a.book-hit")) dialog.close();
      });
      document.body.append(dialog);
      attach(form, output, 8, 4, true);
    }
    dialog.showModal();
    const input = dialog.querySelector("input");
    input.focus();
    input.select();
  };

  /* ---------------------------------------------------------------- search.html, 404.html */

  const form = document.querySelector("main .book-search-form, article .book-search-form");
  if (form) {
    const output = document.querySelector(".book-search-results");
    const { input, show } = attach(form, output, 30, 8, false);
    const asked = new URLSearchParams(location.search).get("q");
    const lost = document.querySelector("#no-such-page");
    // A lost address often holds the words that its page is about.
    input.value = asked ?? (lost && !/\/404\.html$/.test(location.pathname) ? decodeURIComponent(
      location.pathname.replace(/\/$/, "").split("/").pop()).replace(/\.\w+$/, "").replace(/[-_]/g, " ") : "");
    if (input.value) show();
    if (!lost) {
      input.focus();
      input.addEventListener("input", () => {
        try {
          history.replaceState(null, "", input.value ? `?q=${encodeURIComponent(input.value)}` : location.pathname);
        } catch { /* a page opened from a file may refuse it */ }
      });
    }
  }

  window.bookSearchToggle = toggle;
  // For the tests, and for trying queries in the console.
  window.bookSearch = async (query) => {
    const book = await load();
    return search(book, query).pages.map((group) => ({
      page: book.pages[group.page].page, score: group.score,
      hits: group.hits.map((hit) => ({ ...book.docs[hit.id], score: hit.score })) }));
  };
})();
