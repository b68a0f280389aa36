// How the status page shows NextGraph's events.
entryKinds.nextgraph = {
  shown: row => el("div", {}, "a NextGraph event, encrypted by its clients", el("pre", {}, hexDump(row.hex.slice(0, 128)) + " …")),
};
