"""A device that pushes readings over HTTP, with nothing but Python's own library, and reads back.

    python examples/http_device.py http://127.0.0.1:8891 readings KEY_FILE

KEY_FILE holds the API key, as `rillnode apikey new` shows it.
"""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

READINGS = [{"device": f"d{number % 3}", "celsius": 20 + number / 2} for number in range(6)]


def ask(request: Request, key: str) -> tuple[bytes, str]:
    """The answer's body, and the position that follows; an error says what to do."""
    request.add_header("Authorization", f"Bearer {key}")
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.read(), answer.headers.get("Rillnode-Next", "")
    except HTTPError as error:
        problem = json.load(error)
        sys.exit(f"{problem['text']} [{problem['code']}]\nnext: {problem['next']}")


def main(url: str, stream: str, key_file: str) -> None:
    """Push all readings in one request, then read them page by page."""
    key = Path(key_file).read_text(encoding="utf-8").strip()
    path = f"{url}/streams/{quote(stream, safe='')}"
    lines = "".join(json.dumps(reading) + "\n" for reading in READINGS).encode()
    headers = {"Content-Type": "application/x-ndjson"}
    body, _ = ask(Request(f"{path}?key_field=device", lines, headers), key)
    places: list[dict[str, int]] = json.loads(body)["indexes"]
    print(f"stored {len(places)} readings, the first at {places[0]['index']}")

    position = str(places[0]["index"])
    while True:
        body, position = ask(Request(f"{path}?from={position}&limit=4"), key)
        if not body:
            break
        for line in body.splitlines():
            entry: dict[str, Any] = json.loads(line)
            print(f"{entry['index']}: {entry['key']} {entry['json']['celsius']}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
