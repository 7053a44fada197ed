package amd64

// nameRows give the mnemonics by opcode. An opcode word has the form of usesRows; a word of one
// opcode may be followed by the names of the next ones too: "70 jo jno", "80/0 add or". A name may
// have two forms, for W 0 and 1, or three, for 16, 32 and 64 bits. VEX and EVEX names are not given
// if they equal the legacy or VEX one.
var nameRows = []struct{ column, names string }{
	{"1", `
		00-05 add 06 push pop 08-0d or 0e push 10-15 adc 16 push pop 18-1d sbb 1e push pop 20-25 and 27 daa 28-2d sub 2f
		das 30-35 xor 37 aaa 38-3d cmp 3f aas 40-47 inc 48-4f dec 50-57 push 58-5f pop 60 pusha popa bound movsxd 68 push
		imul push imul 6c-6d ins 6e-6f outs 70 jo jno jb jae je jne jbe ja js jns jp jnp jl jge jle jg 80/0 add or adc sbb
		and sub xor cmp 81/0 add or adc sbb and sub xor cmp 82/0 add or adc sbb and sub xor cmp 83/0 add or adc sbb and
		sub xor cmp 84-85 test 86-87 xchg 88-8c mov 8d lea mov pop nop 91-97 xchg 98 cbw|cwde|cdqe cwd|cdq|cqo 9a call
		fwait pushf popf sahf lahf a0-a3 movabs a4-a5 movs a6-a7 cmps a8-a9 test aa-ab stos ac-ad lods ae-af scas b0-b7 mov b8-bf mov|movabs c0/0 rol ror rcl rcr shl shr shl sar c1/0 rol ror rcl rcr shl shr shl sar c2-c3 ret c4 les lds c6/0 mov c6/7
		xabort c7/0 mov c7/7 xbegin c8 enter leave ca-cb retf|retfq cc int3 int into iret|iretq d0/0 rol ror rcl rcr shl shr shl
		sar d1/0 rol ror rcl rcr shl shr shl sar d2/0 rol ror rcl rcr shl shr shl sar d3/0 rol ror rcl rcr shl shr shl sar
		d4 aam aad d7 xlat d8/0 fadd fmul fcom fcomp fsub fsubr fdiv fdivr d9/0 fld fxch d9/2m fst d9/2r fnop d9/3 fstp
		d9/4m fldenv d9:e0 fchs d9:e1 fabs d9:e4 ftst d9:e5 fxam d9/5m fldcw d9:e8 fld1 d9:e9 fldl2t d9:ea fldl2e d9:eb
		fldpi d9:ec fldlg2 d9:ed fldln2 d9:ee fldz d9/6m fnstenv d9:f0 f2xm1 d9:f1 fyl2x d9:f2 fptan d9:f3 fpatan d9:f4
		fxtract d9:f5 fprem1 d9:f6 fdecstp d9:f7 fincstp d9/7m fnstcw d9:f8 fprem d9:f9 fyl2xp1 d9:fa fsqrt d9:fb fsincos
		d9:fc frndint d9:fd fscale d9:fe fsin d9:ff fcos da/0m fiadd da/0r fcmovb da/1m fimul da/1r fcmove da/2m ficom
		da/2r fcmovbe da/3m ficomp da/3r fcmovu da/4 fisub da/5m fisubr da/5r fucompp da/6 fidiv fidivr db/0m fild db/0r
		fcmovnb db/1m fisttp db/1r fcmovne db/2m fist db/2r fcmovnbe db/3m fistp db/3r fcmovnu db:e0 fneni db:e1 fndisi
		db:e2 fnclex db:e3 fninit db:e4 fnsetpm db:e5 frstpm db/5m fld db/5r fucomi db/6 fcomi fstp dc/0 fadd fmul fcom
		fcomp dc/4m fsub dc/4r fsubr dc/5m fsubr dc/5r fsub dc/6m fdiv dc/6r fdivr dc/7m fdivr dc/7r fdiv dd/0m fld dd/0r
		ffree dd/1 fisttp fst fstp dd/4m frstor dd/4r fucom dd/5 fucomp fnsave fnstsw de/0m fiadd de/0r faddp de/1m fimul
		de/1r fmulp de/2 ficom de/3m ficomp de/3r fcompp de/4m fisub de/4r fsubrp de/5m fisubr de/5r fsubp de/6m fidiv
		de/6r fdivrp de/7m fidivr de/7r fdivp df/0m fild df/0r ffreep df/1 fisttp fist fistp df/4m fbld df/4r fnstsw df/5m
		fild df/5r fucomip df/6m fbstp df/6r fcomip df/7 fistp e0 loopne loope loop jcxz|jecxz|jrcxz e4-e5 in e6-e7 out e8
		call e9-eb jmp ec-ed in ee-ef out f1 int1 f4 hlt cmc f6/0 test test not neg mul imul div idiv f7/0 test test not
		neg mul imul div idiv f8 clc stc cli sti cld std fe/0 inc dec ff/0 inc dec call call jmp jmp push`},
	{"0F", `
		00/0 sldt str lldt ltr verr verw 02 lar lsl 05 syscall clts sysretd|sysretq invd 0b ud2 0d/0 prefetch prefetchw
		prefetchwt1 prefetch prefetch prefetch prefetch prefetch 0e femms 18 nop 18/0m prefetchnta prefetcht0 prefetcht1
		prefetcht2 19 nop 1d nop 1f nop 20-23 mov 30 wrmsr rdtsc rdmsr rdpmc sysenter sysexitd|sysexitq 37 getsec 40 cmovo
		cmovno cmovb cmovae cmove cmovne cmovbe cmova cmovs cmovns cmovp cmovnp cmovl cmovge cmovle cmovg 80 jo jno jb jae
		je jne jbe ja js jns jp jnp jl jge jle jg seto setno setb setae sete setne setbe seta sets setns setp setnp setl
		setge setle setg a2 cpuid bt a4-a5 shld a6/0 montmul xsha1 xsha256 a7/0 xstore-rng xcrypt-ecb xcrypt-cbc
		xcrypt-ctr xcrypt-cfb xcrypt-ofb aa rsm bts ac-ad shrd af imul b0-b1 cmpxchg b2 lss btr lfs lgs b6-b7 movzx b9 ud1
		ba/4 bt bts btr btc bb btc be-bf movsx c0-c1 xadd c8-cf bswap d7 pmovmskb ff ud0`},
	{"NP.0F", `
		01/0m sgdt 01:c0 enclv 01:c1 vmcall 01:c2 vmlaunch 01:c3 vmresume 01:c4 vmxoff 01:c5 pconfig 01:c6 wrmsrns 01/1m
		sidt 01:c8 monitor 01:c9 mwait 01:ca clac 01:cb stac 01:cf encls 01/2m lgdt 01:d0 xgetbv 01:d1 xsetbv 01:d4 vmfunc
		01:d5 xend 01:d6 xtest 01:d7 enclu 01/3m lidt 01:d8 vmrun 01:d9 vmmcall 01:da vmload 01:db vmsave 01:dc stgi 01:dd
		clgi 01:de skinit 01:df invlpga 01/4 smsw 01:e8 serialize 01:ee rdpkru 01:ef wrpkru 01/6 lmsw 01/7m invlpg 01:f8
		swapgs 01:f9 rdtscp 01:fa monitorx 01:fb mwaitx 01:fc clzero 01:fd rdpru 01:fe invlpgb 01:ff tlbsync 09 wbinvd
		10-11 movups 12/0-7m movlps 12/0-7r movhlps 13 movlps unpcklps unpckhps 16/0-7m movhps 16/0-7r movlhps 17 movhps
		1a nop 1a/0m bndldx bndldx bndldx bndldx 1b nop 1b/0m bndstx bndstx bndstx bndstx 1c nop 1c/0m cldemote 1e nop
		28-29 movaps 2a cvtpi2ps movntps cvttps2pi cvtps2pi ucomiss comiss 50 movmskps sqrtps rsqrtps rcpps andps andnps
		orps xorps addps mulps cvtps2pd cvtdq2ps subps minps divps maxps punpcklbw punpcklwd punpckldq packsswb pcmpgtb
		pcmpgtw pcmpgtd packuswb punpckhbw punpckhwd punpckhdq packssdw 6e movd|movq movq pshufw 71/2 psrlw 71/4 psraw
		71/6 psllw 72/2 psrld 72/4 psrad 72/6 pslld 73/2 psrlq 73/6 psllq 74 pcmpeqb pcmpeqw pcmpeqd emms vmread vmwrite
		7e movd|movq movq a0 push pop a8 push pop ae/0 fxsave|fxsave64 fxrstor|fxrstor64 ldmxcsr stmxcsr xsave|xsave64
		ae/5m xrstor|xrstor64 ae/5r lfence ae/6m xsaveopt|xsaveopt64 ae/6r mfence ae/7m clflush ae/7r sfence bc bsf bsr c2
		cmpps movnti pinsrw pextrw shufps c7/1 cmpxchg8b|cmpxchg16b c7/3 xrstors|xrstors64 xsavec|xsavec64 xsaves|xsaves64
		c7/6m vmptrld c7/6r rdrand c7/7m vmptrst c7/7r rdseed d1 psrlw psrld psrlq paddq pmullw d8 psubusb psubusw pminub
		pand paddusb paddusw pmaxub pandn pavgb psraw psrad pavgw pmulhuw pmulhw e7 movntq psubsb psubsw pminsw por paddsb
		paddsw pmaxsw pxor f1 psllw pslld psllq pmuludq pmaddwd psadbw maskmovq psubb psubw psubd psubq paddb paddw paddd`},
	{"66.0F", `
		01:cc tdcall 01:cd seamret 01:ce seamops 01:cf seamcall 10-11 movupd 12-13 movlpd 14 unpcklpd unpckhpd 16-17
		movhpd 1a-1b bndmov 1c nop 28-29 movapd 2a cvtpi2pd movntpd cvttpd2pi cvtpd2pi ucomisd comisd 50 movmskpd sqrtpd
		54 andpd andnpd orpd xorpd addpd mulpd cvtpd2ps cvtps2dq subpd minpd divpd maxpd 6c punpcklqdq punpckhqdq 6f
		movdqa pshufd 73/3 psrldq 73/7 pslldq 78-79 extrq 7c haddpd hsubpd 7f movdqa ae/6m clwb ae/6r tpause ae/7m
		clflushopt c2 cmppd c6 shufpd c7/6m vmclear d0 addsubpd d6 movq e6 cvttpd2dq movntdq f7 maskmovdqu`},
	{"F3.0F", `
		01:c6 wrmsrlist 01:d9 vmgexit 01/5m rstorssp 01:e8 setssbsy 01:ea saveprevssp 01:ec uiret 01:ed testui 01:ee clui
		01:ef stui 01:fa mcommit 01:fd rmpquery 01:fe rmpadjust 01:ff psmash 09 wbnoinvd 10-11 movss 12 movsldup 16
		movshdup 1a bndcl 1b/0m bndmk bndmk bndmk bndmk 1c nop 1e/1r rdsspd|rdsspq 1e:fa endbr64 1e:fb endbr32 2a cvtsi2ss
		movntss cvttss2si cvtss2si 51 sqrtss rsqrtss rcpss 58 addss mulss cvtss2sd cvttps2dq subss minss divss maxss 6f
		movdqu pshufhw 7e movq movdqu ae/0m fxsave ae/0r rdfsbase ae/1m fxrstor ae/1r rdgsbase ae/2m ldmxcsr ae/2r
		wrfsbase ae/3m stmxcsr ae/3r wrgsbase ae/4 ptwrite incsspd|incsspq ae/6m clrssbsy ae/6r umonitor ae/7 sfence b8
		popcnt bc tzcnt lzcnt c2 cmpss c7/6m vmxon c7/6r senduipi rdpid d6 movq2dq e6 cvtdq2pd`},
	{"F2.0F", `
		01:c6 rdmsrlist 01:d9 vmgexit 01:e8 xsusldtrk 01:e9 xresldtrk 01:fe rmpupdate 01:ff pvalidate 10-11 movsd 12
		movddup 1a bndcu bndcn nop 2a cvtsi2sd movntsd cvttsd2si cvtsd2si 51 sqrtsd 58 addsd mulsd cvtsd2ss 5c subsd minsd
		divsd maxsd 70 pshuflw 78-79 insertq 7c haddps hsubps ae/6 umwait sfence c2 cmpsd c7/7 vmptrst d0 addsubps d6
		movdq2q e6 cvtpd2dq f0 lddqu`},
	{"NP.0F38", `
		00 pshufb phaddw phaddd phaddsw pmaddubsw phsubw phsubd phsubsw psignb psignw psignd pmulhrsw 1c pabsb pabsw pabsd
		c8 sha1nexte sha1msg1 sha1msg2 sha256rnds2 sha256msg1 sha256msg2 f0-f1 movbe f6 wrssd|wrssq f9 movdiri fc aadd`},
	{"66.0F38", `
		10 pblendvb 14 blendvps blendvpd 17 ptest 20 pmovsxbw pmovsxbd pmovsxbq pmovsxwd pmovsxwq pmovsxdq 28 pmuldq
		pcmpeqq movntdqa packusdw 30 pmovzxbw pmovzxbd pmovzxbq pmovzxwd pmovzxwq pmovzxdq 37 pcmpgtq pminsb pminsd pminuw
		pminud pmaxsb pmaxsd pmaxuw pmaxud pmulld phminposuw 80 invept invvpid invpcid cf gf2p8mulb db aesimc aesenc
		aesenclast aesdec aesdeclast f5 wrussd|wrussq adcx f8 movdir64b fc aand`},
	{"F3.0F38", `
		d8/0 aesencwide128kl aesdecwide128kl aesencwide256kl aesdecwide256kl dc/0-7m aesenc128kl dc/0-7r loadiwkey dd
		aesdec128kl aesenc256kl aesdec256kl f6 adox f8 enqcmds fa encodekey128 encodekey256 axor`},
	{"F2.0F38", `
		f0-f1 crc32 f8 enqcmd fc aor`},
	{"NP.0F3A", `
		0f palignr cc sha1rnds4`},
	{"66.0F3A", `
		08 roundps roundpd roundss roundsd blendps blendpd pblendw 14 pextrb pextrw pextrd|pextrq extractps 20 pinsrb
		insertps pinsrd|pinsrq 40 dpps dppd mpsadbw 44 pclmulqdq 60 pcmpestrm pcmpestri pcmpistrm pcmpistri ce
		gf2p8affineqb gf2p8affineinvqb df aeskeygenassist`},
	{"F3.0F3A", `
		f0 hreset`},
	{"VEX.NP.0F", `
		41 kandw|kandq kandnw|kandnq 44 knotw|knotq korw|korq kxnorw|kxnorq kxorw|kxorq 4a kaddw|kaddq kunpckwd|kunpckdq
		77 vzeroupper 90-91 kmovw|kmovq 92-93 kmovw 98 kortestw|kortestq ktestw|ktestq ae/2 vldmxcsr vstmxcsr`},
	{"VEX.66.0F", `
		41 kandb|kandd kandnb|kandnd 44 knotb|knotd korb|kord kxnorb|kxnord kxorb|kxord 4a kaddb|kaddd kunpckbw 6e
		vmovd|vmovq 7e vmovd|vmovq 90-91 kmovb|kmovd 92-93 kmovb 98 kortestb|kortestd ktestb|ktestd`},
	{"VEX.F2.0F", `
		92-93 kmovd|kmovq`},
	{"VEX.NP.0F38", `
		49/0m ldtilecfg 49:c0 tilerelease 50 vpdpbuud vpdpbuuds 5e tdpbuud b0 vcvtneoph2ps f2 andn f3/1 blsr blsmsk blsi f5 bzhi f7 bextr`},
	{"VEX.66.0F38", `
		0c vpermilps vpermilpd vtestps vtestpd 13 vcvtph2ps 16 vpermps 18 vbroadcastss vbroadcastsd vbroadcastf128 2c
		vmaskmovps vmaskmovpd vmaskmovps vmaskmovpd 36 vpermd 45 vpsrlvd|vpsrlvq vpsravd vpsllvd|vpsllvq 49 sttilecfg 4b
		tileloaddt1 50 vpdpbusd vpdpbusds vpdpwssd vpdpwssds 58 vpbroadcastd vpbroadcastq vbroadcasti128 5e tdpbusd 78
		vpbroadcastb vpbroadcastw 8c vpmaskmovd|vpmaskmovq 8e vpmaskmovd|vpmaskmovq 90 vpgatherdd|vpgatherdq
		vpgatherqd|vpgatherqq vgatherdps|vgatherdpd vgatherqps|vgatherqpd 96 vfmaddsub132ps|vfmaddsub132pd
		vfmsubadd132ps|vfmsubadd132pd vfmadd132ps|vfmadd132pd vfmadd132ss|vfmadd132sd vfmsub132ps|vfmsub132pd
		vfmsub132ss|vfmsub132sd vfnmadd132ps|vfnmadd132pd vfnmadd132ss|vfnmadd132sd vfnmsub132ps|vfnmsub132pd
		vfnmsub132ss|vfnmsub132sd a6 vfmaddsub213ps|vfmaddsub213pd vfmsubadd213ps|vfmsubadd213pd vfmadd213ps|vfmadd213pd
		vfmadd213ss|vfmadd213sd vfmsub213ps|vfmsub213pd vfmsub213ss|vfmsub213sd vfnmadd213ps|vfnmadd213pd
		vfnmadd213ss|vfnmadd213sd vfnmsub213ps|vfnmsub213pd vfnmsub213ss|vfnmsub213sd vcvtneeph2ps vbcstnesh2ps b4
		vpmadd52luq vpmadd52huq vfmaddsub231ps|vfmaddsub231pd vfmsubadd231ps|vfmsubadd231pd vfmadd231ps|vfmadd231pd
		vfmadd231ss|vfmadd231sd vfmsub231ps|vfmsub231pd vfmsub231ss|vfmsub231sd vfnmadd231ps|vfnmadd231pd
		vfnmadd231ss|vfnmadd231sd vfnmsub231ps|vfnmsub231pd vfnmsub231ss|vfnmsub231sd e0 cmpoxadd cmpnoxadd cmpbxadd
		cmpnbxadd cmpzxadd cmpnzxadd cmpbexadd cmpnbexadd cmpsxadd cmpnsxadd cmppxadd cmpnpxadd cmplxadd cmpnlxadd
		cmplexadd cmpnlexadd f7 shlx`},
	{"VEX.F3.0F38", `
		4b tilestored 50 vpdpbsud vpdpbsuds 5c tdpbf16ps 5e tdpbsud 72 vcvtneps2bf16 b0 vcvtneebf162ps vbcstnebf162ps f5
		pext f7 sarx`},
	{"VEX.F2.0F38", `
		49 tilezero 4b tileloadd 50 vpdpbssd vpdpbssds 5c tdpfp16ps 5e tdpbssd b0 vcvtneobf162ps f5 pdep mulx shrx`},
	{"VEX.66.0F3A", `
		00 vpermq vpermpd vpblendd 04 vpermilps vpermilpd vperm2f128 16 vpextrd|vpextrq 18 vinsertf128 vextractf128 1d
		vcvtps2ph 22 vpinsrd|vpinsrq 30 kshiftrb|kshiftrw kshiftrd|kshiftrq kshiftlb|kshiftlw kshiftld|kshiftlq 38
		vinserti128 vextracti128 46 vperm2i128 48 vpermil2ps vpermil2pd vblendvps vblendvpd vpblendvb 5c vfmaddsubps
		vfmaddsubpd vfmsubaddps vfmsubaddpd vpcmpestrm|vpcmpestrmq vpcmpestri|vpcmpestriq 68 vfmaddps vfmaddpd vfmaddss
		vfmaddsd vfmsubps vfmsubpd vfmsubss vfmsubsd 78 vfnmaddps vfnmaddpd vfnmaddss vfnmaddsd vfnmsubps vfnmsubpd
		vfnmsubss vfnmsubsd`},
	{"VEX.F2.0F3A", `
		f0 rorx`},
	{"EVEX.NP.0F", `
		5b vcvtdq2ps|vcvtqq2ps 78 vcvttps2udq|vcvttpd2udq vcvtps2udq|vcvtpd2udq`},
	{"EVEX.66.0F", `
		6f vmovdqa32|vmovdqa64 72/0 vprord|vprorq vprold|vprolq vpsrld 72/4 vpsrad|vpsraq 72/6 vpslld 78
		vcvttps2uqq|vcvttpd2uqq vcvtps2uqq|vcvtpd2uqq vcvttps2qq|vcvttpd2qq vcvtps2qq|vcvtpd2qq 7f vmovdqa32|vmovdqa64 db
		vpandd|vpandq df vpandnd|vpandnq e2 vpsrad|vpsraq eb vpord|vporq ef vpxord|vpxorq`},
	{"EVEX.F3.0F", `
		6f vmovdqu32|vmovdqu64 78 vcvttss2usi vcvtss2usi vcvtudq2pd|vcvtuqq2pd vcvtusi2ss 7f vmovdqu32|vmovdqu64 e6
		vcvtdq2pd|vcvtqq2pd`},
	{"EVEX.F2.0F", `
		6f vmovdqu8|vmovdqu16 78 vcvttsd2usi vcvtsd2usi vcvtudq2ps|vcvtuqq2ps vcvtusi2sd 7f vmovdqu8|vmovdqu16`},
	{"EVEX.NP.0F38", `
		4e vrsqrt14ps|vrsqrt14pd`},
	{"EVEX.66.0F38", `
		10 vpsrlvw vpsravw vpsllvw 14 vprorvd|vprorvq vprolvd|vprolvq vpermps|vpermpd 19 vbroadcastf32x2|vbroadcastsd
		vbroadcastf32x4|vbroadcastf64x2 vbroadcastf32x8|vbroadcastf64x4 1f vpabsq 26 vptestmb|vptestmw vptestmd|vptestmq
		2c vscalefps|vscalefpd vscalefss|vscalefsd 36 vpermd|vpermq 39 vpminsd|vpminsq 3b vpminud|vpminuq 3d
		vpmaxsd|vpmaxsq 3f vpmaxud|vpmaxuq vpmulld|vpmullq 42 vgetexpps|vgetexppd vgetexpss|vgetexpsd vplzcntd|vplzcntq 46
		vpsravd|vpsravq 4c vrcp14ps|vrcp14pd vrcp14ss|vrcp14sd vrsqrt14ps|vrsqrt14pd vrsqrt14ss|vrsqrt14sd 54
		vpopcntb|vpopcntw vpopcntd|vpopcntq 59 vbroadcasti32x2|vpbroadcastq vbroadcasti32x4|vbroadcasti64x2
		vbroadcasti32x8|vbroadcasti64x4 62 vpexpandb|vpexpandw vpcompressb|vpcompressw vpblendmd|vpblendmq
		vblendmps|vblendmpd vpblendmb|vpblendmw 70 vpshldvw vpshldvd|vpshldvq vpshrdvw vpshrdvd|vpshrdvq 75
		vpermi2b|vpermi2w vpermi2d|vpermi2q vpermi2ps|vpermi2pd 7a vpbroadcastb vpbroadcastw vpbroadcastd|vpbroadcastq
		vpermt2b|vpermt2w vpermt2d|vpermt2q vpermt2ps|vpermt2pd 83 vpmultishiftqb 88 vexpandps|vexpandpd
		vpexpandd|vpexpandq vcompressps|vcompresspd vpcompressd|vpcompressq 8d vpermb|vpermw 8f vpshufbitqmb a0
		vpscatterdd|vpscatterdq vpscatterqd|vpscatterqq vscatterdps|vscatterdpd vscatterqps|vscatterqpd c4
		vpconflictd|vpconflictq c6/1 vgatherpf0dps|vgatherpf0dpd vgatherpf1dps|vgatherpf1dpd c6/5
		vscatterpf0dps|vscatterpf0dpd vscatterpf1dps|vscatterpf1dpd c7/1 vgatherpf0qps|vgatherpf0qpd
		vgatherpf1qps|vgatherpf1qpd c7/5 vscatterpf0qps|vscatterpf0qpd vscatterpf1qps|vscatterpf1qpd c8 vexp2ps|vexp2pd ca
		vrcp28ps|vrcp28pd vrcp28ss|vrcp28sd vrsqrt28ps|vrsqrt28pd vrsqrt28ss|vrsqrt28sd`},
	{"EVEX.F3.0F38", `
		10 vpmovuswb vpmovusdb vpmovusqb vpmovusdw vpmovusqw vpmovusqd 20 vpmovswb vpmovsdb vpmovsqb vpmovsdw vpmovsqw
		vpmovsqd vptestnmb|vptestnmw vptestnmd|vptestnmq vpmovm2b|vpmovm2w vpmovb2m|vpmovw2m vpbroadcastmb2q 30 vpmovwb
		vpmovdb vpmovqb vpmovdw vpmovqw vpmovqd 38 vpmovm2d|vpmovm2q vpmovd2m|vpmovq2m vpbroadcastmw2d 4e
		vrsqrt14ps|vrsqrt14pd 52 vdpbf16ps`},
	{"EVEX.F2.0F38", `
		4e vrsqrt14ps|vrsqrt14pd 52 vp4dpwssd vp4dpwssds 68 vp2intersectd|vp2intersectq 72 vcvtne2ps2bf16 9a v4fmaddps
		v4fmaddss aa v4fnmaddps v4fnmaddss`},
	{"EVEX.NP.0F3A", `
		08 vrndscaleph 0a vrndscalesh 26 vgetmantph vgetmantsh 42 vdbpsadbw 56 vreduceph vreducesh 66 vfpclassph
		vfpclasssh 70 vpshldw 72 vpshrdw c2 vcmpph`},
	{"EVEX.66.0F3A", `
		03 valignd|valignq 08 vrndscaleps vrndscalepd vrndscaless vrndscalesd 18 vinsertf32x4|vinsertf64x2
		vextractf32x4|vextractf64x2 vinsertf32x8|vinsertf64x4 vextractf32x8|vextractf64x4 1e vpcmpud|vpcmpuq vpcmpd|vpcmpq
		23 vshuff32x4|vshuff64x2 25 vpternlogd|vpternlogq vgetmantps|vgetmantpd vgetmantss|vgetmantsd 38
		vinserti32x4|vinserti64x2 vextracti32x4|vextracti64x2 vinserti32x8|vinserti64x4 vextracti32x8|vextracti64x4 3e
		vpcmpub|vpcmpuw vpcmpb|vpcmpw 42 vdbpsadbw vshufi32x4|vshufi64x2 50 vrangeps|vrangepd vrangess|vrangesd 54
		vfixupimmps|vfixupimmpd vfixupimmss|vfixupimmsd vreduceps|vreducepd vreducess|vreducesd 66 vfpclassps|vfpclasspd
		vfpclassss|vfpclasssd 70 vpshldw vpshldd|vpshldq vpshrdw vpshrdd|vpshrdq`},
	{"EVEX.F3.0F3A", `
		42 vdbpsadbw 70 vpshldw 72 vpshrdw c2 vcmpsh`},
	{"EVEX.F2.0F3A", `
		42 vdbpsadbw 70 vpshldw 72 vpshrdw`},
	{"EVEX.NP.M5", `
		1d vcvtss2sh 2e vucomish vcomish 51 vsqrtph 58 vaddph vmulph vcvtph2pd vcvtdq2ph|vcvtqq2ph vsubph vminph vdivph
		vmaxph 78 vcvttph2udq vcvtph2udq 7c vcvttph2uw vcvtph2uw`},
	{"EVEX.66.M5", `
		1d vcvtps2phx 5a vcvtpd2ph vcvtph2dq 6e vmovw 78 vcvttph2uqq vcvtph2uqq vcvttph2qq vcvtph2qq vcvttph2w vcvtph2w
		vmovw`},
	{"EVEX.F3.M5", `
		10-11 vmovsh 2a vcvtsi2sh 2c vcvttsh2si vcvtsh2si 51 vsqrtsh 58 vaddsh vmulsh vcvtsh2sd vcvttph2dq vsubsh vminsh
		vdivsh vmaxsh 78 vcvttsh2usi vcvtsh2usi 7b vcvtusi2sh 7d vcvtw2ph`},
	{"EVEX.F2.M5", `
		5a vcvtsd2sh 7a vcvtudq2ph|vcvtuqq2ph 7d vcvtuw2ph`},
	{"EVEX.NP.M6", `
		13 vcvtsh2ss`},
	{"EVEX.66.M6", `
		13 vcvtph2psx 2c vscalefph vscalefsh 42 vgetexpph vgetexpsh 4c vrcpph vrcpsh vrsqrtph vrsqrtsh 96 vfmaddsub132ph
		vfmsubadd132ph vfmadd132ph vfmadd132sh vfmsub132ph vfmsub132sh vfnmadd132ph vfnmadd132sh vfnmsub132ph vfnmsub132sh
		a6 vfmaddsub213ph vfmsubadd213ph vfmadd213ph vfmadd213sh vfmsub213ph vfmsub213sh vfnmadd213ph vfnmadd213sh
		vfnmsub213ph vfnmsub213sh b6 vfmaddsub231ph vfmsubadd231ph vfmadd231ph vfmadd231sh vfmsub231ph vfmsub231sh
		vfnmadd231ph vfnmadd231sh vfnmsub231ph vfnmsub231sh`},
	{"EVEX.F3.M6", `
		56 vfmaddcph vfmaddcsh d6 vfmulcph vfmulcsh`},
	{"EVEX.F2.M6", `
		56 vfcmaddcph vfcmaddcsh d6 vfcmulcph vfcmulcsh`},
	{"XOP.X8", `
		85 vpmacssww vpmacsswd vpmacssdql 8e vpmacssdd vpmacssdqh 95 vpmacsww vpmacswd vpmacsdql 9e vpmacsdd vpmacsdqh a2
		vpcmov vpperm a6 vpmadcsswd b6 vpmadcswd c0 vprotb vprotw vprotd vprotq cc vpcomb vpcomw vpcomd vpcomq ec vpcomub
		vpcomuw vpcomud vpcomuq`},
	{"XOP.X9", `
		01/1 blcfill blsfill blcs tzmsk blcic blsic t1mskc 02/1 blcmsk 02/6 blci 12/0 llwpcb slwpcb 80 vfrczps vfrczpd
		vfrczss vfrczsd 90 vprotb vprotw vprotd vprotq vpshlb vpshlw vpshld vpshlq vpshab vpshaw vpshad vpshaq c1 vphaddbw
		vphaddbd vphaddbq c6 vphaddwd vphaddwq cb vphadddq d1 vphaddubw vphaddubd vphaddubq d6 vphadduwd vphadduwq db
		vphaddudq e1 vphsubbw vphsubwd vphsubdq`},
	{"XOP.XA", `
		10 bextr 12/0 lwpins lwpval`},
	{"3DNow", `
		0c pi2fw pi2fd 1c pf2iw pf2id 8a pfnacc 8e pfpnacc 90 pfcmpge 94 pfmin 96 pfrcp pfrsqrt 9a pfsub 9e pfadd a0
		pfcmpgt a4 pfmax a6 pfrcpit1 pfrsqit1 aa pfsubr ae pfacc b0 pfcmpeq b4 pfmul b6 pfrcpit2 pmulhrw bb pswapd bf
		pavgusb`},
}
