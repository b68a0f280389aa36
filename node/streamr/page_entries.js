// How the status page shows Streamr's messages: they are arrays, and this is what stands where in the newest version of them.
{
  const parts = ["version", "id", "previous", "message type", "content type", "encryption type", "group key id", "content", "new group key", "signature type", "signature"];
  const ofId = ["stream", "partition", "timestamp", "sequence", "publisher", "chain"];
  const named = (names, values) => Object.fromEntries(values.map((value, i) => [names[i] || String(i), value]));
  entryKinds.streamr = {
    meant: value => {
      if (!Array.isArray(value) || value[0] !== 32 || !Array.isArray(value[1])) return value;
      const message = { ...named(parts, value), id: named(ofId, value[1]) };
      try { if (!message["encryption type"]) message.content = JSON.parse(message.content); } catch { }
      return message;
    },
    line: message => message.content,
  };
}
