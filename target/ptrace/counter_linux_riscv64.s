#include "textflag.h"

// func timeStamp() uint64
TEXT ·timeStamp(SB), NOSPLIT, $0-8
	RDTIME X10
	MOV X10, ret+0(FP)
	RET
