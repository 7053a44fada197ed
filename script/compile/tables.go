package compile

import (
	"slices"

	"kprobe/script/macro"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// What the language names: providers, values, types and functions.

// builtins have the types of names that are values. What depends on the probe is in ident.
var builtins = map[string]*types.Type{
	"pid": types.Uint32, "tid": types.Uint32, "uid": types.Uint64, "gid": types.Uint64, "cpu": types.Uint64, "nsecs": types.Uint64,
	"elapsed": types.Uint64, "rand": types.Uint32, "comm": types.StringOf(16), "username": {Kind: types.User, Size: 8}, "ncpus": types.Uint64,
	"cpid": types.Uint64, "usermode": types.Uint8, "jiffies": types.Uint64, "curtask": types.Uint64, "numaid": types.Uint32,
	"cgroup": types.Uint64, "has_cpid": types.BoolT,
	"ustack": {Kind: types.UStack, Size: 8}, "kstack": {Kind: types.KStack, Size: 8},
}

var functions map[string]*function

func init() { // what they are checked by asks for them
	functions = map[string]*function{
		"count": {0, 0, is(&types.Type{Kind: types.Count, Size: 8}), false},
		"sum":   {1, 1, gathers(types.Sum), false},
		"avg":   {1, 1, gathers(types.Avg), false},
		"stats": {1, 1, gathers(types.Stats), false},
		"min":   {1, 1, gathers(types.Min), false},
		"max":   {1, 1, gathers(types.Max), false},
		"hist":  {1, 2, (*checker).hist, false},
		"lhist": {4, 4, (*checker).lhist, false},

		"printf": {1, 64, (*checker).printf, true},
		"errorf": {1, 64, (*checker).printf, true},
		"warnf":  {1, 64, (*checker).printf, true},
		"system": {1, 64, (*checker).printf, true},
		"cat":    {1, 64, (*checker).printf, true},
		"time":   {0, 1, (*checker).clock, true},
		"print":  {1, 3, (*checker).print, true},
		"clear":  {1, 1, (*checker).wholeMap, true},
		"zero":   {1, 1, (*checker).wholeMap, true},
		"exit":   {0, 1, (*checker).exit, true},
		"delete": {1, 2, (*checker).deletes, false},

		"len":           {1, 1, (*checker).length, false},
		"getopt":        {1, 3, (*checker).getopt, false},
		"buf":           {1, 2, (*checker).buf, false},
		"ntop":          {1, 2, (*checker).ntop, false},
		"has_key":       {2, 2, (*checker).hasKey, false},
		"str":           {1, 2, (*checker).str, false},
		"strncmp":       {3, 3, (*checker).strncmp, false},
		"sizeof":        {1, 1, (*checker).sizeof, false},
		"usym":          {1, 1, addressed(types.USym), false},
		"ksym":          {1, 1, addressed(types.KSym), false},
		"strerror":      {1, 1, worded(""), false},
		"signal_name":   {1, 1, worded("signal"), false},
		"syscall_name":  {1, 1, worded("syscall"), false},
		"strftime":      {2, 2, (*checker).strftime, false},
		"reg":           {1, 1, (*checker).reg, false},
		"nsecs":         {0, 1, (*checker).nsecs, false},
		"ustack":        {0, 2, (*checker).stack, false},
		"kstack":        {0, 2, (*checker).stack, false},
		"pid":           {0, 1, (*checker).pidOf, false},
		"tid":           {0, 1, (*checker).pidOf, false},
		"override":      {1, 1, (*checker).override, true},
		"bswap":         {1, 1, (*checker).bswap, false},
		"static_assert": {1, 2, (*checker).staticAssert, true},

		"tseries": {3, 4, (*checker).tseries, false},

		"join":    {1, 2, (*checker).join, true},
		"unwatch": {1, 1, (*checker).unwatch, true},
		"fail":    {1, 64, (*checker).fail, true},
		"debugf":  {1, 4, (*checker).printf, true},
		"assert":  {1, 2, (*checker).assert, true},

		"signal":        {1, 1, (*checker).signal, true},
		"signal_thread": {1, 1, (*checker).signal, true},

		"macaddr":      {1, 1, (*checker).macaddr, false},
		"pton":         {1, 1, (*checker).pton, false},
		"cgroupid":     {1, 1, (*checker).cgroupID, false},
		"cgroup_path":  {1, 2, (*checker).cgroupPath, false},
		"kaddr":        {1, 1, (*checker).kaddr, false},
		"uaddr":        {1, 1, (*checker).uaddr, false},
		"percpu_kaddr": {1, 2, (*checker).percpuKaddr, false},
		"write_user":   {2, 2, (*checker).writeUser, false},
		"kptr":         {1, 1, (*checker).space, false},
		"uptr":         {1, 1, (*checker).space, false},
		"offsetof":     {2, 2, (*checker).offsetof, false},
		"find":         {3, 3, (*checker).findKey, false},
		"is_scalar":    {1, 1, (*checker).question, false},

		"strlen":      {1, 1, (*checker).strlen, false},
		"strcap":      {1, 1, (*checker).strlen, false},
		"strcontains": {2, 2, (*checker).strcontains, false},
		"strstr":      {2, 2, (*checker).strcontains, false},
		"memcmp":      {3, 3, (*checker).memcmp, false},

		"is_integer": {1, 1, (*checker).question, false}, "is_unsigned_integer": {1, 1, (*checker).question, false},
		"is_str": {1, 1, (*checker).question, false}, "is_ptr": {1, 1, (*checker).question, false},
		"is_array": {1, 1, (*checker).question, false}, "is_literal": {1, 1, (*checker).question, false},
		"kfunc_exist": {1, 1, (*checker).kernelFunction, false}, "kfunc_allowed": {1, 1, (*checker).kernelFunction, false},
		"assert_str": {1, 1, (*checker).assertText, true}, "default_str_length": {0, 0, (*checker).defaultLength, false},

		"typeinfo": {1, 1, (*checker).typeinfo, false},

		"path":          {1, 2, notHere("path() is for what the kernel calls while it holds a file"), false},
		"skboutput":     {4, 4, notHere("packets of the network are none of what a probe here sees"), false},
		"socket_cookie": {1, 1, notHere("sockets are none of what a probe here sees"), false},
		"globmatch":     {2, 2, notHere("patterns are not matched in a probe yet: strcontains and strncmp are there"), false},
	}
}

// ptRegs is what ctx points to at functions: Linux's struct pt_regs on x86-64.
var ptRegs = func() *types.Type {
	t := &types.Type{Kind: types.Record, Name: "struct pt_regs", Len: 8}
	for _, name := range []string{"r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di",
		"orig_ax", "ip", "cs", "flags", "sp", "ss"} {
		t.Fields = append(t.Fields, types.Field{Name: name, Type: types.Uint64, Offset: t.Size})
		t.Size += 8
	}
	return t
}()

// savedAt is where struct pt_regs has what programs pass.
// Source: Linux, arch/x86/include/asm/ptrace.h.
var savedAt = map[string]int32{"r10": 56, "r9": 64, "r8": 72, "rdx": 96, "rsi": 104, "rdi": 112}

// gathering functions make aggregates: they stand for nothing but what a map gathers.
var gathering = map[string]bool{"count": true, "sum": true, "avg": true, "min": true, "max": true, "stats": true, "hist": true, "lhist": true, "tseries": true}

// named is what a call of what is a name too stands for; nil where it is none.
func named(x syntax.Expr) syntax.Expr { return macro.Value(x, isValue) }

func isValue(name string) bool {
	_, builtin := builtins[name]
	return functions[name] == nil && (builtin || slices.Contains([]string{"func", "probe", "probetype", "retval"}, name))
}
