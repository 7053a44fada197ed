package bpf

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// Objects ask the kernel that loads them what it has, by its types (CO-RE):
// bpf_core_type_exists(struct bpf_ringbuf), or bpf_core_enum_value_exists(enum bpf_func_id,
// BPF_FUNC_get_attach_cookie). The answer is the truth about this place.

// madeHelpers are helpers that programs may call though they are not among Helpers: see lower.go.
var madeHelpers = []int32{
	fnTailCall, fnGetCurrentTask, fnGetStack, fnMapPushElem, fnMapPopElem, fnMapPeekElem, fnStrtol, fnStrtoul, fnSendSignal,
	fnSendSignalThread, fnJiffies, fnGetNsPidTgid, fnCopyFromUser, fnTaskStorageGet, fnTaskStorageDelete, fnGetCurrentTaskBtf,
	fnForEachMapElem, fnSnprintf, fnLoop, fnStrncmp,
}

// kernelMapTypes are the kernel's names of the kinds of maps that objects may have.
var kernelMapTypes = map[MapType]string{
	Hash: "HASH", Array: "ARRAY", progArray: "PROG_ARRAY", PerfEventArray: "PERF_EVENT_ARRAY", PerCPUHash: "PERCPU_HASH",
	PerCPUArray: "PERCPU_ARRAY", StackTrace: "STACK_TRACE", LRUHash: "LRU_HASH", LRUPerCPUHash: "LRU_PERCPU_HASH",
	LPMTrie: "LPM_TRIE", arrayOfMaps: "ARRAY_OF_MAPS", hashOfMaps: "HASH_OF_MAPS", Queue: "QUEUE", Stack: "STACK",
	RingBuf: "RINGBUF", taskStorage: "TASK_STORAGE", BloomFilter: "BLOOM_FILTER",
}

// ownTypes are the kernel's types by which objects ask for helpers and kinds of maps.
var ownTypes = sync.OnceValue(func() []btf.Type {
	helpers, kinds := &btf.Enum{Name: "bpf_func_id", Size: 4}, &btf.Enum{Name: "bpf_map_type", Size: 4}
	ids := append(slices.Clone(madeHelpers), slices.Collect(maps.Keys(Helpers))...)
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if name := HelperName(id); !strings.ContainsRune(name, '(') {
			helpers.Values = append(helpers.Values, btf.EnumValue{Name: "BPF_FUNC_" + strings.TrimPrefix(name, "bpf_"), Value: uint64(id)})
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kernelMapTypes)) {
		kinds.Values = append(kinds.Values, btf.EnumValue{Name: "BPF_MAP_TYPE_" + kernelMapTypes[kind], Value: uint64(kind)})
	}
	return []btf.Type{helpers, kinds, &btf.Struct{Name: "bpf_ringbuf"}}
})
