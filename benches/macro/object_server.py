"""An object server for benchmarks: the part of S3's protocol that Forebay, Polars and DuckDB use, over a folder.

Each folder below the root is a bucket. Every request waits `--latency` before its first byte, every connection
transfers `--bandwidth` at most, and `--errors` is the share of requests that are answered with 503. Signatures are
not checked. `GET /-/counts` tells what was asked since the last `POST /-/reset`, as JSON.

One process and one thread: bodies go from the page cache to the socket by `sendfile`."""

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import tempfile
import time
import urllib.parse
from datetime import datetime, timezone
from email.utils import formatdate
from pathlib import Path
from xml.sax.saxutils import escape

KEYS_PER_PAGE = 1000
SLICE_SECONDS = 0.02  # How often a connection's bandwidth is looked at.
REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 304: "Not Modified", 404: "Not Found"}
REASONS |= {409: "Conflict", 412: "Precondition Failed", 416: "Range Not Satisfiable", 503: "Slow Down"}


class Refused(Exception):
    def __init__(self, status, code):
        self.status, self.code = status, code


class Counts:
    def __init__(self):
        self.in_flight = 0
        self.reset()

    def reset(self):
        self.by_method = {}
        self.errors = self.sent = self.received = 0
        self.in_flight_max = self.in_flight
        self.gets_of_ranges = 0

    def shown(self):
        return {
            "requests": sum(self.by_method.values()),
            "methods": self.by_method,
            "ranges": self.gets_of_ranges,
            "errors": self.errors,
            "bytes_sent": self.sent,
            "bytes_received": self.received,
            "in_flight_max": self.in_flight_max,
        }


class Bandwidth:
    """How much a connection may transfer, in slices."""

    def __init__(self, bytes_per_second):
        self.rate = bytes_per_second
        self.slice = max(int(bytes_per_second * SLICE_SECONDS), 16 << 10) if bytes_per_second else 1 << 22
        self.next = 0.0

    async def passed(self, count):
        if not self.rate:
            return
        now = time.monotonic()
        self.next = max(self.next, now - SLICE_SECONDS) + count / self.rate
        if self.next > now:
            await asyncio.sleep(self.next - now)


class Server:
    def __init__(self, options):
        self.root, self.options, self.counts = Path(options.root).resolve(), options, Counts()
        self.random = random.Random(options.seed)
        self.uploads = Path(tempfile.mkdtemp(prefix="uploads-", dir=self.root.parent))
        self.upload_count = 0

    def path(self, target):
        path = (self.root / target.lstrip("/")).resolve()
        if not path.is_relative_to(self.root):
            raise Refused(404, "NoSuchKey")
        return path

    async def serve(self, reader, writer):
        bandwidth = Bandwidth(self.options.bandwidth * 1e6)
        try:
            while True:
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except (asyncio.IncompleteReadError, ConnectionError):
                    break
                lines = head.decode("latin-1").split("\r\n")
                method, target, _ = lines[0].split(" ", 2)
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
                url = urllib.parse.urlsplit(target)
                query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
                request = Request(self, reader, writer, bandwidth, method, urllib.parse.unquote(url.path), query, headers)
                await request.answer()
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            writer.close()


class Request:
    def __init__(self, server, reader, writer, bandwidth, method, path, query, headers):
        self.server, self.reader, self.writer, self.bandwidth = server, reader, writer, bandwidth
        self.method, self.path, self.query, self.headers = method, path, query, headers
        self.length = int(headers.get("content-length", 0))

    async def answer(self):
        counts, options = self.server.counts, self.server.options
        if self.path.startswith("/-/"):
            if self.path == "/-/reset":
                counts.reset()
            return self.text(200, json.dumps(counts.shown()), "application/json")
        counts.in_flight += 1
        counts.in_flight_max = max(counts.in_flight_max, counts.in_flight)
        counts.by_method[self.method] = counts.by_method.get(self.method, 0) + 1
        try:
            delay = options.latency / 1000
            if options.stragglers and self.server.random.random() < options.stragglers:
                delay += options.straggler_delay / 1000
            await asyncio.sleep(delay)
            if options.errors and self.server.random.random() < options.errors:
                counts.errors += 1
                await self.received(None)
                raise Refused(503, "SlowDown")
            await self.done()
        except Refused as refused:
            if self.method == "HEAD":
                self.head(refused.status, {"Content-Length": "0"})
            else:
                self.text(refused.status, f"<Error><Code>{refused.code}</Code><Message>no</Message></Error>")
        finally:
            counts.in_flight -= 1

    async def done(self):
        bucket, _, key = self.path.lstrip("/").partition("/")
        if not (self.server.root / bucket).is_dir():
            await self.received(None)
            raise Refused(404, "NoSuchBucket")
        if self.method == "GET" and not key:
            return self.listing(bucket)
        if self.method in ("GET", "HEAD"):
            return await self.get(self.server.path(self.path))
        if self.method == "PUT":
            return await self.put(self.server.path(self.path))
        if self.method == "POST" and "uploads" in self.query:
            self.server.upload_count += 1
            (self.server.uploads / str(self.server.upload_count)).mkdir()
            where = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key><UploadId>{self.server.upload_count}</UploadId>"
            return self.text(200, f"<InitiateMultipartUploadResult>{where}</InitiateMultipartUploadResult>")
        if self.method == "POST" and "delete" in self.query:
            return await self.delete_many(bucket)
        if self.method == "POST" and "uploadId" in self.query:
            return await self.complete(self.server.path(self.path))
        if self.method == "DELETE":
            if "uploadId" in self.query:
                shutil.rmtree(self.upload(), ignore_errors=True)
            else:
                self.server.path(self.path).unlink(missing_ok=True)
            return self.head(204, {})
        raise Refused(404, "NotImplemented")

    # Answers.

    def head(self, status, fields):
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Error')}", *(f"{k}: {v}" for k, v in fields.items())]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    def text(self, status, text, kind="application/xml"):
        body = text.encode()
        self.head(status, {"Content-Type": kind, "Content-Length": len(body)})
        self.writer.write(body)

    async def received(self, into):
        """Takes the request's body, to a file or nowhere."""
        left = self.length
        while left:
            part = await self.reader.read(min(left, self.bandwidth.slice))
            if not part:
                raise ConnectionError
            left -= len(part)
            self.server.counts.received += len(part)
            if into:
                into.write(part)
            await self.bandwidth.passed(len(part))

    # Objects.

    @staticmethod
    def etag(stat):
        return '"' + hashlib.md5(f"{stat.st_ino} {stat.st_mtime_ns} {stat.st_size}".encode()).hexdigest() + '"'

    def check(self, path):
        """The conditions of a request."""
        stat = path.stat() if path.is_file() else None
        wanted, unwanted = self.headers.get("if-match"), self.headers.get("if-none-match")
        is_one = lambda etags: stat and (etags == "*" or self.etag(stat) in [e.strip() for e in etags.split(",")])
        if wanted and not is_one(wanted):
            raise Refused(412, "PreconditionFailed")
        if unwanted and is_one(unwanted):
            raise Refused(304 if self.method in ("GET", "HEAD") else 412, "PreconditionFailed")
        return stat

    async def get(self, path):
        stat = self.check(path)
        if stat is None:
            raise Refused(404, "NoSuchKey")
        size, status = stat.st_size, 200
        begin, end = 0, size
        fields = {"ETag": self.etag(stat), "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        fields["Last-Modified"] = formatdate(stat.st_mtime, usegmt=True)
        asked = self.headers.get("range", "")
        if asked.startswith("bytes=") and self.method == "GET":
            first, _, last = asked[6:].partition("-")
            if first:
                begin, end = int(first), min(int(last) + 1 if last else size, size)
            else:
                begin = max(size - int(last), 0)
            if begin >= end:
                raise Refused(416, "InvalidRange")
            status = 206
            fields["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
            self.server.counts.gets_of_ranges += 1
        fields["Content-Length"] = end - begin
        self.head(status, fields)
        if self.method == "HEAD":
            return
        await self.writer.drain()
        loop = asyncio.get_running_loop()
        with open(path, "rb") as file:
            while begin < end:
                count = min(self.bandwidth.slice, end - begin)
                await loop.sendfile(self.writer.transport, file, begin, count)
                begin += count
                self.server.counts.sent += count
                await self.bandwidth.passed(count)

    async def put(self, path):
        if "uploadId" in self.query:
            part = self.upload() / f"{int(self.query['partNumber']):05}"
            with open(part, "wb") as file:
                await self.received(file)
            return self.head(200, {"ETag": self.etag(part.stat()), "Content-Length": 0})
        with tempfile.NamedTemporaryFile(dir=self.server.uploads, delete=False) as staged:
            await self.received(staged)
        try:
            self.check(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(staged.name, path)
        except Refused:
            os.unlink(staged.name)
            raise
        self.head(200, {"ETag": self.etag(path.stat()), "Content-Length": 0})

    def upload(self):
        folder = self.server.uploads / str(int(self.query["uploadId"]))
        if not folder.is_dir():
            raise Refused(404, "NoSuchUpload")
        return folder

    async def complete(self, path):
        await self.received(None)
        folder = self.upload()
        whole = folder / "whole"
        with open(whole, "wb") as out:
            for part in sorted(folder.glob("?????")):
                if part.name.isdigit():
                    with open(part, "rb") as file:
                        shutil.copyfileobj(file, out, 1 << 20)
        self.check(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(whole, path)
        shutil.rmtree(folder)
        etag = escape(self.etag(path.stat()))
        self.text(200, f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>")

    async def delete_many(self, bucket):
        body = await self.reader.readexactly(self.length)
        text = body.decode()
        keys = [part.split("</Key>")[0] for part in text.split("<Key>")[1:]]
        for key in keys:
            self.server.path(f"{bucket}/{urllib.parse.unquote(key)}").unlink(missing_ok=True)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self.text(200, f"<DeleteResult>{deleted}</DeleteResult>")

    def listing(self, bucket):
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("continuation-token") or self.query.get("start-after", "")
        page = min(int(self.query.get("max-keys", KEYS_PER_PAGE)), KEYS_PER_PAGE)
        root = self.server.root / bucket
        below = root / prefix.rpartition("/")[0]
        keys = []
        for folder, _, names in os.walk(below):
            relative = os.path.relpath(folder, root)
            keys += [name if relative == "." else f"{relative}/{name}" for name in names]
        shown, seen, last, cut = [], set(), "", False
        for key in sorted(key for key in keys if key.startswith(prefix)):
            rest = key[len(prefix) :]
            name = prefix + rest.split(delimiter)[0] + delimiter if delimiter and delimiter in rest else key
            if name in seen or (name <= after if name == key else name <= after or after.startswith(name)):
                continue
            if len(shown) == page:
                cut = True
                break
            seen.add(name)
            last = name
            if name != key:
                shown.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
                continue
            stat = (root / key).stat()
            changed = datetime.fromtimestamp(stat.st_mtime, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
            facts = f"<LastModified>{changed}</LastModified><ETag>{escape(self.etag(stat))}</ETag><Size>{stat.st_size}</Size>"
            shown.append(f"<Contents><Key>{escape(key)}</Key>{facts}<StorageClass>STANDARD</StorageClass></Contents>")
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if cut else ""
        about = f"<Name>{escape(bucket)}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(shown)}</KeyCount>"
        about += f"<MaxKeys>{page}</MaxKeys><IsTruncated>{str(cut).lower()}</IsTruncated>{token}"
        self.text(200, f"<ListBucketResult>{about}{''.join(shown)}</ListBucketResult>")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", help="the folder whose folders are buckets")
    parser.add_argument("--port", type=int, default=0, help="[any that is free]")
    parser.add_argument("--latency", type=float, default=50, help="milliseconds before the first byte [50]")
    parser.add_argument("--bandwidth", type=float, default=60, help="MB/s of a connection; 0: no limit [60]")
    parser.add_argument("--errors", type=float, default=0, help="share of requests answered with 503 [0]")
    parser.add_argument("--stragglers", type=float, default=0, help="share of requests that are slower to begin [0]")
    parser.add_argument("--straggler-delay", type=float, default=2000, help="milliseconds by which they are [2000]")
    parser.add_argument("--seed", type=int, default=1, help="chooses which requests fail [1]")
    return parser.parse_args()


async def main():
    server = Server(options())
    serving = await asyncio.start_server(server.serve, "127.0.0.1", server.options.port, limit=1 << 20, backlog=1024)
    print(f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}", flush=True)
    try:
        await serving.serve_forever()
    finally:
        shutil.rmtree(server.uploads, ignore_errors=True)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
