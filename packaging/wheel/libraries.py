"""The libraries that a wheel's programs have inside: Debian's sources, fetched, patched and built as static libraries.

Callers: packaging/wheel/build. A folder for each machine has bin/ (the compiler's commands), src/ and prefix/ (what the
programs link with). A library is built again where its entry in sources.json, its recipe here or the compiler changed.
licenses/ has the texts that a wheel shows; a build stops where those of the sources are others.
"""

import concurrent.futures
import hashlib
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "cellblock/sources"
AFTER = {"zeromq3": "libsodium"}  # which is looked for at its build
MIRROR = "http://deb.debian.org"
CFLAGS = ("-O2 -fPIC -g0 -fno-strict-aliasing -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE "
          "-D_FORTIFY_SOURCE=3")
# What is asked of libcrypto is a digest, an HMAC, random bytes and base64 (README.md, "libcrypto").
OPENSSL = """no-shared no-module no-dso no-engine no-legacy no-autoload-config no-tests no-tls no-dtls no-ssl
    no-ec no-dh no-dsa no-cms no-cmp no-ct no-ocsp no-ts no-srp no-psk no-rfc3779 no-comp no-sock no-dgram no-ui-console
    no-async no-aria no-bf no-camellia no-cast no-chacha no-des no-gost no-idea no-md4 no-mdc2 no-ocb no-poly1305 no-rc2
    no-rc4 no-seed no-siphash no-siv no-sm2 no-sm3 no-sm4 no-whirlpool no-scrypt no-filenames no-deprecated
    no-secure-memory no-capieng no-padlockeng no-multiblock no-rmd160 no-err""".split()
SQLITE = ("-DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_SECURE_DELETE -DSQLITE_DQS=0 "
          "-DSQLITE_MAX_SCHEMA_RETRY=25 -DSQLITE_DEFAULT_MEMSTATUS=0")


class Failed(Exception):
    pass


def entries():
    return json.loads((HERE / "sources.json").read_text())


def files_of(entry):
    return [(entry[kind], entry[f"{kind}_sha256"]) for kind in ("source", "debian") if kind in entry]


def fetch(folder, offline):
    """All tarballs in the folder, with the hashes of sources.json."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries():
        for name, sha256 in files_of(entry):
            path, url = folder / name, f"{MIRROR}/{entry['pool']}/{name}"
            if not path.exists():
                if offline:
                    raise Failed(f"{path} is not there; it was at {url}")
                try:
                    with urllib.request.urlopen(url, timeout=120) as answer:
                        data = answer.read()
                except OSError as failure:
                    raise Failed(f"{url}: {failure}; the mirror drops old versions: put the file into {folder}, or "
                                 "take the new version into sources.json") from None
                path.with_suffix(".part").write_bytes(data)
                path.with_suffix(".part").rename(path)
            if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
                raise Failed(f"{path} is not the file that sources.json names; remove it")


def run(command, folder, log, **environment):
    with open(log, "a") as out:
        out.write(f"$ {' '.join(map(str, command))}\n")
        out.flush()
        done = subprocess.run(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              env={**os.environ, **environment})
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command[:3]))} … failed: {log}")


def unpack(sources, entry, folder, log):
    """The sources with Debian's patches; returns their folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run(["tar", "-xf", sources / entry["source"], "--strip-components=1"], folder, log)
    if "debian" in entry:
        run(["tar", "-xf", sources / entry["debian"]], folder, log)
        for line in (folder / "debian/patches/series").read_text().split("\n"):
            patch = line.split("#")[0].strip()
            if patch and patch not in entry.get("skip", []):
                run(["patch", "-p1", "-i", f"debian/patches/{patch}"], folder, log)
    return folder


def same_license(name, text):
    """A wheel lists files of the tree of sources: they must be what the library comes with."""
    copy = HERE / "licenses" / f"LICENSE.{name}.{text.name}"
    if not copy.exists() or copy.read_bytes() != text.read_bytes():
        raise Failed(f"{text} is not what {copy} has: look through it, and copy it there")


class Builder:
    def __init__(self, folder, machine, log):
        self.folder, self.machine, self.prefix, self.log = folder, machine, folder / "prefix", log
        self.cc = folder / "bin/cc"

    def run(self, source, *command, **environment):
        tools = {name: str(self.folder / "bin" / path)
                 for name, path in (("CC", "cc"), ("CXX", "c++"), ("AR", "ar"), ("RANLIB", "ranlib"))}
        run(command, source, self.log, **tools, PKG_CONFIG_LIBDIR=str(self.prefix / "lib/pkgconfig"), **environment)

    def make(self, source, *targets):
        self.run(source, "make", f"-j{os.cpu_count()}", *targets)

    def cmake(self, source, *options):
        self.run(source, "cmake", "-S", ".", "-B", "out", "-G", "Unix Makefiles",
                 f"-DCMAKE_TOOLCHAIN_FILE={self.folder}/toolchain.cmake", f"-DCMAKE_INSTALL_PREFIX={self.prefix}",
                 "-DCMAKE_INSTALL_LIBDIR=lib", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_C_FLAGS_RELEASE={CFLAGS}",
                 f"-DCMAKE_CXX_FLAGS_RELEASE={CFLAGS}", *options)
        self.make(source / "out", "install")

    def configure(self, source, *options):
        if not (source / "configure").exists():
            self.run(source, "autoreconf", "-fi")
        self.run(source, "./configure", f"--prefix={self.prefix}", f"--host={self.machine}-linux-gnu",
                 "--disable-shared", "--enable-static", *options, CFLAGS=CFLAGS)

    def libsodium(self, source):
        self.configure(source)
        self.make(source)
        self.make(source, "install")

    def zeromq3(self, source):
        # Its CMake asks the machine that builds; what it finds (platform.hpp) holds for each Linux with glibc. Asked
        # of zig, each of its questions would link a C++ program.
        run(["cmake", "-S", ".", "-B", "out", "-G", "Unix Makefiles", "-DBUILD_TESTS=OFF", "-DENABLE_DRAFTS=OFF",
             "-DENABLE_WS=OFF", "-DWITH_TLS=OFF", "-DWITH_DOCS=OFF", "-DENABLE_CPACK=OFF", "-DWITH_LIBSODIUM=ON",
             "-DWITH_LIBBSD=OFF", "-DENABLE_PRECOMPILED=OFF", "-DENABLE_CLANG=OFF"], source, self.log,
            PKG_CONFIG_LIBDIR=str(self.prefix / "lib/pkgconfig"))
        flags = [*CFLAGS.split(), "-std=gnu++11", "-DNDEBUG", "-DZMQ_STATIC", "-DSODIUM_STATIC", "-D_GNU_SOURCE",
                 "-DZMQ_CUSTOM_PLATFORM_HPP", f"-I{self.prefix}/include", "-Isrc", "-Iinclude", "-Iout"]
        files = sorted(path for path in (source / "src").glob("*.cpp") if not path.name.startswith(("ws_", "wss_")))
        rule = "%.o: %.cpp\n\t$(CXX) $(FLAGS) -c $< -o $@\n"
        names = " ".join(f"src/{path.stem}.o" for path in files)
        (source / "wheel.mk").write_text(f"FLAGS = {' '.join(flags)}\n{rule}libzmq.a: {names}\n\t$(AR) rcs $@ $^\n")
        self.make(source, "-e", "-f", "wheel.mk", "libzmq.a")
        shutil.copy(source / "libzmq.a", self.prefix / "lib")
        shutil.copy(source / "include/zmq.h", self.prefix / "include")
        # The programs are C: their linker must be told of the C++ library.
        (self.prefix / "lib/pkgconfig/libzmq.pc").write_text(
            f"Name: libzmq\nDescription: ZeroMQ\nVersion: 4.3.4\nCflags: -I{self.prefix}/include\n"
            f"Libs: -L{self.prefix}/lib -lzmq -lsodium -lc++ -lpthread -lrt\n")

    def jansson(self, source):
        self.cmake(source, "-DJANSSON_BUILD_DOCS=OFF", "-DJANSSON_EXAMPLES=OFF", "-DJANSSON_WITHOUT_TESTS=ON",
                   "-DJANSSON_BUILD_SHARED_LIBS=OFF")

    def openssl(self, source):
        # The prefix is where libcrypto would look for modules and engines: it stands in the library.
        self.run(source, "perl", "Configure", f"linux-{self.machine}", "--prefix=/usr", "--libdir=lib",
                 "--openssldir=/etc/ssl", *OPENSSL, *CFLAGS.split())
        self.make(source, "build_generated", "libcrypto.a", "libcrypto.pc")
        shutil.copy(source / "libcrypto.a", self.prefix / "lib")
        told = (source / "libcrypto.pc").read_text().replace("prefix=/usr\n", f"prefix={self.prefix}\n")
        (self.prefix / "lib/pkgconfig/libcrypto.pc").write_text(told)
        shutil.copytree(source / "include/openssl", self.prefix / "include/openssl", dirs_exist_ok=True)

    def libseccomp(self, source):
        (source / "src/syscalls.perf.c").unlink()  # Debian's patch adds to the table that it is made from
        self.configure(source)
        self.make(source / "src")
        self.make(source / "src", "install")
        self.make(source / "include", "install")
        self.make(source, "install-pkgconfDATA")

    def sqlite3(self, source):
        # one file from many, by tools that run here
        run(["./configure", "--disable-tcl", "--disable-readline"], source, self.log, CC="cc")
        run(["make", "sqlite3.c"], source, self.log)
        self.run(source, self.cc, *CFLAGS.split(), *SQLITE.split(), "-c", "sqlite3.c", "-o", "sqlite3.o")
        (self.prefix / "lib/libsqlite3.a").unlink(missing_ok=True)
        self.run(source, self.folder / "bin/ar", "rcs", self.prefix / "lib/libsqlite3.a", "sqlite3.o")
        shutil.copy(source / "sqlite3.h", self.prefix / "include")
        version = (source / "VERSION").read_text().strip()
        (self.prefix / "lib/pkgconfig/sqlite3.pc").write_text(
            f"Name: SQLite\nDescription: SQLite\nVersion: {version}\nLibs: -L{self.prefix}/lib -lsqlite3 -lpthread\n"
            f"Cflags: -I{self.prefix}/include\n")

    def cmocka(self, source):
        self.cmake(source, "-DWITH_STATIC_LIB=ON", "-DWITH_EXAMPLES=OFF", "-DUNIT_TESTING=OFF")
        for shared in (self.prefix / "lib").glob("libcmocka.so*"):
            shared.unlink()
        shutil.copy(next((source / "out").rglob("libcmocka-static.a")), self.prefix / "lib/libcmocka.a")


def build_one(sources, folder, machine, entry, needed):
    """Builds what an entry names where that is not there, after the library that it needs."""
    name, log = entry["name"], folder / "src" / f"{entry['name']}.log"
    stamp = log.with_suffix(".built")
    recipe = [inspect.getsource(getattr(Builder, name)), CFLAGS, OPENSSL, SQLITE,
              (folder.parent / "tools/installed").read_text()]
    state = hashlib.sha256(json.dumps([recipe, entry], sort_keys=True).encode()).hexdigest()
    if needed:
        needed.result()
    if stamp.exists() and stamp.read_text() == state:
        return
    print(f"== {name} {entry['version']} for {machine}", flush=True)
    log.unlink(missing_ok=True)
    source = unpack(sources, entry, folder / "src" / name, log)
    for text in entry["license"]:
        same_license(name, source / text)
    getattr(Builder(folder, machine, log), name)(source)
    stamp.write_text(state)


def build(sources, folder, machine, tests=False):
    """What the programs are linked with, or what their unit tests need besides: as many libraries at a time as there
    are processors, since much of the work (configure, SQLite's one file) takes one."""
    for made in ("prefix/lib/pkgconfig", "prefix/include", "src"):
        (folder / made).mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        started = {}
        for entry in sorted(entries(), key=lambda entry: entry["name"] in AFTER):  # those that wait for none first
            if tests == ("only" in entry):
                needed = started.get(AFTER.get(entry["name"]))
                started[entry["name"]] = pool.submit(build_one, sources, folder, machine, entry, needed)
        for built in concurrent.futures.as_completed(started.values()):
            if built.exception():
                pool.shutdown(cancel_futures=True)
                raise built.exception()
