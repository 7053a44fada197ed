package inject

import (
	"maps"
	"math/bits"

	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/internal/segment"
)

// helperRoutines are the routines for the helpers that compiled programs call.
var helperRoutines = map[int32]string{
	bpf.FnMapLookupElem:      "map_lookup_elem",
	bpf.FnMapUpdateElem:      "map_update_elem",
	bpf.FnMapDeleteElem:      "map_delete_elem",
	bpf.FnMapWalk:            "map_walk",
	bpf.FnProbeRead:          "probe_read",
	bpf.FnProbeReadUser:      "probe_read",
	bpf.FnProbeReadKernel:    "probe_read", // one process, one memory
	bpf.FnProbeReadStr:       "probe_read_str",
	bpf.FnProbeReadUserStr:   "probe_read_str",
	bpf.FnProbeReadKernelStr: "probe_read_str",
	bpf.FnProbeWriteUser:     "probe_write_user",
	bpf.FnKtimeGetNs:         "ktime_get_ns",
	bpf.FnKtimeGetCoarseNs:   "ktime_get_ns", // finer than asked for
	bpf.FnKtimeGetBootNs:     "ktime_get_boot_ns",
	bpf.FnTracePrintk:        "trace_printk",
	bpf.FnTraceVprintk:       "trace_vprintk",
	bpf.FnGetPrandomU32:      "get_prandom_u32",
	bpf.FnGetSmpProcessorID:  "get_smp_processor_id",
	bpf.FnGetCurrentUidGid:   "get_current_uid_gid",
	bpf.FnGetCurrentComm:     "get_current_comm",
	bpf.FnPerfEventOutput:    "perf_event_output",
	bpf.FnGetStackid:         "get_stackid",
	bpf.FnOverrideReturn:     "override_return",
	bpf.FnRingbufOutput:      "ringbuf_output",
	bpf.FnRingbufReserve:     "ringbuf_reserve",
}

// RoutineNames are the offsets and numbers that a machine's routines are assembled with.
func (m *Machine) RoutineNames() map[string]int64 {
	all := segment.Names()
	maps.Copy(all, names)
	all["TARGET_SP"] = int64(m.TargetSP())
	maps.Copy(all, m.Names)
	return all
}

// get_stackid's flags: BPF_F_SKIP_FIELD_MASK, and those that there are.
const (
	StackSkip  = 0xff
	StackFlags = 0x700 | bpf.StackEntry
)

// names are those of areas, and of package bpf's maps.
var names = map[string]int64{
	"AREA_CODE": AreaCode, "AREA_HEAD": AreaHead, "AREA_TABLE": AreaTable, "AREA_CAREFUL": AreaCareful,

	"ARRAY": int64(bpf.Array), "PERCPU_ARRAY": int64(bpf.PerCPUArray), "LRU_HASH": int64(bpf.LRUHash),
	"LRU_PERCPU_HASH": int64(bpf.LRUPerCPUHash), "STACK_TRACE": int64(bpf.StackTrace),
	"HDR_TYPE": layout.HdrType, "HDR_KEY_SIZE": layout.HdrKeySize, "HDR_VALUE_SIZE": layout.HdrValueSize,
	"HDR_ELEMS": layout.HdrElems, "HDR_SLOTS": layout.HdrSlots, "HDR_BUCKETS": layout.HdrBuckets, "HDR_RING_SIZE": layout.HdrRingSize,
	"HDR_INDEX": layout.HdrIndex, "HDR_KEYS": layout.HdrKeys, "HDR_VALUES": layout.HdrValues, "HDR_KEY_STRIDE": layout.HdrKeyStride,
	"HDR_VALUE_STRIDE": layout.HdrValueStride, "HDR_SLOT_STRIDE": layout.HdrSlotStride,
	"BUCKET_LOCK": layout.BucketLock, "BUCKET_HAND": layout.BucketHand, "BUCKET_TAGS": layout.BucketTags,
	"BUCKET_USED": layout.BucketUsed, "BUCKET_SLOTS": layout.BucketSlots, "BUCKET_SHIFT": 6,
	"TAG_BUSY": layout.TagBusy, "TAG_KEY": layout.TagKey, "LOCK_TRIES": layout.LockTries, "LOCK_SLOT_BITS": layout.LockSlotBits, "HASH_MUL": hashMul,
	"RING_HEAD": layout.RingHead, "RING_LOST": layout.RingLost, "RING_TAIL": layout.RingTail, "RING_DATA": layout.RingData,
	"RECORD_HEADER": layout.RecordHeader, "RECORD_BUSY": layout.RecordBusy, "RECORD_DISCARD": layout.RecordDiscard,
	"TRACE_COUNT": layout.TraceCount, "TRACE_HASH": layout.TraceHash, "TRACE_INDEX_SIZE": layout.TraceIndexSize,
	"TRACE_BUSY": layout.TraceBusy, "TRACE_PROBES": layout.TraceProbes,
	"PRINTK_ARGS": bpf.PrintkArgs, "PRINTK_THREAD": bpf.PrintkThread, "PRINTK_LEN": bpf.PrintkLen,
	"PRINTK_COUNT": bpf.PrintkCount, "PRINTK_TEXTS": bpf.PrintkTexts, "PRINTK_TEXT": bpf.PrintkText,
	"MAX_PRINTK": bpf.MaxPrintk, "MAX_PRINTK_OF": bpf.MaxPrintkOf,
	"UPDATE_NOEXIST": bpf.UpdateNoExist, "UPDATE_EXIST": bpf.UpdateExist,
	"STACK_SKIP": StackSkip, "STACK_FLAGS": StackFlags, "STACK_REUSE": 0x400, // BPF_F_REUSE_STACKID
	"STACK_ENTRY_BIT": int64(bits.TrailingZeros(bpf.StackEntry)),

	"ENOENT": bpf.ENOENT, "E2BIG": bpf.E2BIG, "EAGAIN": bpf.EAGAIN, "EFAULT": bpf.EFAULT, "EBUSY": bpf.EBUSY,
	"EEXIST": bpf.EEXIST, "EINVAL": bpf.EINVAL, "ENOSPC": bpf.ENOSPC,
}

// hashMul is package bpf's: 2^64 divided by the golden ratio, made odd.
const hashMul = 0x9e3779b97f4a7c15 - 1<<64
