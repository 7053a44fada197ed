package inject

import (
	"math/bits"

	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/internal/jit"
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

// names are the offsets and numbers that testdata's routines are assembled with; those of
// machine.names come on top.
var names = map[string]int64{
	"AREA_CODE": areaCode, "AREA_HEAD": areaHead, "AREA_TABLE": areaTable, "AREA_CAREFUL": areaCareful,

	"HEAD_DEAD": headDead, "HEAD_TGID": headTgid, "HEAD_NEXT": headNext, "HEAD_MAX": headMax, "HEAD_STATES": headStates, "HEAD_STRIDE": headStride, "HEAD_SPAN": headSpan, "HEAD_HELD": headHeld, "GROUP_SHIFT": groupShift, "GROUP_MASK": groupStates - 1,
	"HEAD_SINK": headSink, "HEAD_OTHER": headOther, "HEAD_TRACE": headTrace, "HEAD_READ_TEXT": headReadText, "HEAD_UID_GID": headUIDGID,
	"HEAD_CURRENT": headCurrent, "HEAD_CRED": headCurrent + 4, "HEAD_UID": headUID, "HEAD_GID": headUID + 4,
	"HEAD_CLOCK_BASE": headClock, "HEAD_CLOCK_MULT": headClock + 8, "HEAD_CLOCK_SHIFT": headClock + 16, "HEAD_CLOCK_BOOT": headClock + 24,
	"HEAD_READS_BASE": headReadsBase, "HEAD_PROOF": headProof, "HEAD_SHARED": headShared, "HEAD_ANY_SHARED": headAnyShared,
	"HASH_FACTOR": hashFactor - 1<<32, "KEY_FACTOR": keyFactor, "HASH_SHIFT32": hashShift32, "HASH_SHIFT64": hashShift64, "HASH_MASK": hashMask,
	"ODD_KEY": oddKey, "ODD_BIT": oddBit, "KEY_ALIGN": keyAlign - 1,
	"HEAD_FILES": headFiles, "FILE_ALIGN": fileAlign - 1,
	"TABLE_WINDOW": tableWindow, "ENTRY_SIZE": entrySize, "TOMBSTONE": tombstone,

	"STATE_PID_TGID": jit.StatePidTgid, "STATE_SLOT": jit.StateSlot,
	"STATE_BUSY": stateBusy, "STATE_CLOSED": stateClosed, "STATE_BACK": stateBack,
	"STATE_KEY": stateKey, "STATE_CALLS": stateCalls, "STATE_STACK_LOW": stateStackLow,
	"STATE_STACK_HIGH": stateStackHigh, "STATE_OVERRIDE": stateOverride,
	"STATE_VALUE": stateValue, "STATE_COMM": stateComm, "COMM_SIZE": commSize, "STATE_RANDOM": stateRandom, "STATE_TRACE": stateTrace,
	"STATE_COUNTERS": stateCounters, "STATE_CALL": stateCall, "STATE_RSP": stateRSP, "STATE_FREE": stateFree,
	"STATE_FREES": stateFrees, "STATE_ASKED": stateAsked, "STATE_OWNER": stateOwner, "STATE_OWN": stateOwn,

	"CALL_SIZE": callSize, "CALL_SHIFT": callShift, "CALL_MARK": callMark, "CALL_OWNER": callOwner, "MARK_LEFT": markLeft,
	"AWAY_KEYS": awayKeys, "AWAY_CALLS": awayCalls, "AWAY_MASK": awayMask, "AWAY_ANY": awayAny, "AWAY_SHIFT": awayShift,
	"AWAY_BUCKET": 8 * awayBucket, "AWAY_CLAIMED": awayClaimed, "CALLS_AWAY": 8 * Away,
	"CALL_SLOT": callSlot, "CALL_RET": callRet, "CALL_PROBE": callProbe,
	"CALL_DATA": callData, "CALL_BACK": callBack, "CALLS_AT": stateCallsAt, "MAX_CALLS": maxCalls,
	"LOST_UNWOUND": 8 * LostUnwound, "LOST_GOEXIT": 8 * LostGoexit,

	"POOL_NEXT": poolNext, "POOL_MAX": poolMax, "POOL_CALLS": poolCalls, "POOL_GIVEN": poolGiven, "POOL_DATA": poolData,
	"POOL_GOROUTINES": poolGoroutines, "POOL_GOID": poolGoid, "POOL_BATCH": poolBatch,
	"OWNER_KEY": ownerKey, "OWNER_TOP": ownerTop, "OWNER_ID": ownerID, "OWNER_AGAIN": ownerAgain,
	"OWNER_COUNT": ownerCount, "OWNER_SIZE": ownerSize,
	"OWNERS_HASH": ownersHash, "OWNERS_SHIFT": ownersShift, "OWNERS_MASK": ownersMask, "OWNERS_WINDOW": ownersWindow,
	"NODE_NEXT": nodeNext, "NODE_PLACE": nodePlace, "NODE_RET": nodeRet, "NODE_PROBE": nodeProbe, "NODE_BATCH": nodeBatch,
	"NODE_SHIFT": nodeShift, "DATA_SHIFT": dataShift,
	"SLOTS_ACTIVE": slotsActive, "SLOTS_FAR": slotsFar, "SLOTS_MASK": slotsMask, "SLOTS_CARRIER": slotsCarrier,
	"SLOT_DATA_SHIFT": slotDataShift, "LOST_EXITED": 8 * LostExited,
	"GO_STACK_LO": goStackLo, "GO_STACK_HI": goStackHi,

	"CONTEXT_ORIG_AX": int64(word(wordOrigAX)), "CONTEXT_CS": int64(word(wordCS)), "CONTEXT_SS": int64(word(wordSS)),
	"CONTEXT_IP": wordIP, "CONTEXT_FP": wordFP, "CONTEXT_SP": wordSP,

	// Linux keeps the CPU's number in the limit of this segment: its low bits.
	"CPU_SEGMENT": 0x7b, "CPU_MASK": 0xfff,

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
	"STACK_SKIP": 0xff, "STACK_FLAGS": 0x700 | bpf.StackEntry, "STACK_REUSE": 0x400, // BPF_F_SKIP_FIELD_MASK, BPF_F_REUSE_STACKID
	"STACK_ENTRY_BIT": int64(bits.TrailingZeros(bpf.StackEntry)),

	"ENOENT": bpf.ENOENT, "E2BIG": bpf.E2BIG, "EAGAIN": bpf.EAGAIN, "EFAULT": bpf.EFAULT, "EBUSY": bpf.EBUSY,
	"EEXIST": bpf.EEXIST, "EINVAL": bpf.EINVAL, "ENOSPC": bpf.ENOSPC,
}

// hashMul is package bpf's: 2^64 divided by the golden ratio, made odd.
const hashMul = 0x9e3779b97f4a7c15 - 1<<64
