/* Ctrl-K and the search button open the search. What searches (finder.js, MiniSearch, the index) is
   loaded then and not before: no page's first view carries it. */
(() => {
  "use strict";
  const here = document.currentScript.src;
  let loading = null;
  const load = () => (loading ??= new Promise((done, fail) => {
    const script = document.createElement("script");
    script.src = new URL("finder.js", here).href;
    script.onload = done;
    script.onerror = () => { loading = null; script.remove(); fail(); };
    document.head.append(script);
  }));
  const toggle = (event) => {
    // Before the theme's own listeners, which open a field that only leads to search.html.
    event.preventDefault();
    event.stopImmediatePropagation();
    load().then(() => window.bookSearchToggle(),
      () => { location.href = new URL("../search.html", here).href; });
  };
  window.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey
        && event.key.toLowerCase() === "k") toggle(event);
  }, true);
  window.addEventListener("click", (event) => {
    if (event.target.closest?.(".search-button, .search-button__button, [data-book-search]"))
      toggle(event);
  }, true);
  const start = () => { if (document.querySelector(".book-search-form")) load().catch(() => {}); };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
