# Runs a program under gdb, stops it at places, and tells what its variables are there: a line of JSON a stop, after
# which it waits for a line, while others look at the program.
import gdb, json, os, struct

conf = json.load(open(os.environ["VALUES_CONF"]))
out, back = open(conf["Out"], "w"), open(conf["Back"])
C = gdb.TYPE_CODE_INT, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_PTR
OUT = dict(Out=True)


def value(v, depth):
    """A number, the members of a struct, or what is wrong with it."""
    try:
        t = v.type.strip_typedefs()
        if t.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            v = v.referenced_value()
            t = v.type.strip_typedefs()
        if v.is_optimized_out:
            return OUT
        if t.code in C and t.sizeof <= 8:
            return dict(N=str(int(v.cast(word) if t.code == gdb.TYPE_CODE_PTR else v) & (1 << 8 * t.sizeof) - 1))
        if t.code == gdb.TYPE_CODE_FLT and t.sizeof in (4, 8):
            f = float(v)
            return dict(N=str(int.from_bytes(struct.pack("<d" if t.sizeof == 8 else "<f", f), "little")))
        if t.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION) and depth < 3:
            ms = {}
            for f in t.fields():
                if f.name and not f.is_base_class and hasattr(f, "bitpos"):
                    m = value(v[f], depth + 1)
                    if f.bitsize and "N" in m:
                        m["N"] = str(int(m["N"]) & (1 << f.bitsize) - 1)
                    ms[f.name] = m
            return dict(Members=ms)
        return dict(Other=str(t))
    except gdb.MemoryError as e:
        return dict(Fault=str(e))
    except gdb.error as e:
        return OUT if "optimized out" in str(e) else dict(Error=str(e))


def variables(frame, block):
    vs, seen = [], set()
    while block is not None:
        for s in block:
            if (s.is_argument or s.is_variable) and s.name not in seen:
                seen.add(s.name)
                try:
                    v = value(s.value(frame), 0)
                except gdb.error as e:
                    v = OUT if "optimized out" in str(e) else dict(Error=str(e))
                vs.append(dict(Name=s.name, V=v))
        if block.function is not None:
            break
        block = block.superblock
    return vs


for c in ("set pagination off", "set width 0", "set debuginfod enabled off", "set confirm off", "set disable-randomization on",
          "handle all nostop noprint pass", "handle SIGTRAP stop nopass", "set print entry-values no"):
    gdb.execute(c)
gdb.execute("break " + conf["Begin"])
gdb.execute("run")
gdb.execute("delete")
pid = gdb.selected_inferior().pid
word = gdb.selected_inferior().architecture().integer_type(64, False)
reg = lambda f, n: int(f.read_register(n).cast(word))
bias = reg(gdb.newest_frame(), "rip") - conf["BeginAt"] & ~4095
for a in conf["Places"]:
    gdb.execute("%s *%d" % ("break" if conf["Again"] else "tbreak", a + bias), to_string=True)
seed, n = 12345, 0


def stack(f):
    """Where the innermost function is, and where its callers go on."""
    pcs = []
    while f is not None and len(pcs) < 9:
        if f.type() == gdb.NORMAL_FRAME:
            pcs.append(f.pc())
        f = f.older()
    return pcs


names = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip fs_base".split()
while n < conf["Stops"]:
    gdb.execute("continue", to_string=True)
    if gdb.selected_inferior().pid == 0:
        break
    seed = (seed * 1103515245 + 12345) & 0x7fffffff
    if (seed >> 8) % 4:
        gdb.execute("stepi %d" % ((seed >> 10) % 16), to_string=True)
    f = gdb.newest_frame()
    pc = f.pc()
    b = gdb.block_for_pc(pc)
    while b is not None and b.function is None:
        b = b.superblock
    if b is None or f.function() is None or b.function.name != f.function().name:
        continue  # gdb hides an inlined copy at its first instruction
    n += 1
    regs = {r: reg(f, r) for r in names}
    vectors = [int(f.read_register("xmm%d" % i)["v2_int64"][k]) & 2**64 - 1 for i in range(16) for k in range(2)]
    print(json.dumps(dict(PID=pid, PC=pc, TID=gdb.selected_thread().ptid[1], Func=str(f.name()), Stack=stack(f), Inline=f.type() == gdb.INLINE_FRAME, Regs=regs, Vectors=vectors, Vars=variables(f, gdb.block_for_pc(pc)))), file=out, flush=True)
    back.readline()
out.close()
if gdb.selected_inferior().pid:
    gdb.execute("kill")
