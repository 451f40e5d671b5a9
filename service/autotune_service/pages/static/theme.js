"use strict";
// Before anything is drawn, so that no page flashes in the other theme.
(function () {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* storage is switched off: the system's theme it is */ }
})();
