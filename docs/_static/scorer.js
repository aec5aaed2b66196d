// Scores of search results: Sphinx's own, with pages for contributors and old versions last.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    /^(decisions\/|architecture$|changelog$|contributors$|development$|log$)/.test(docname)
      ? score / 100
      : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
