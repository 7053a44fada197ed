// struct module and its friends, in the layout that kernels have had since 6.4: the
// members that are read, in the order and with the types that they have there.
struct list_head {
	struct list_head *next, *prev;
};
enum module_state { MODULE_STATE_LIVE, MODULE_STATE_COMING, MODULE_STATE_GOING, MODULE_STATE_UNFORMED };
enum mod_mem_type {
	MOD_TEXT = 0, MOD_DATA, MOD_RODATA, MOD_RO_AFTER_INIT,
	MOD_INIT_TEXT, MOD_INIT_DATA, MOD_INIT_RODATA, MOD_MEM_NUM_TYPES,
};
struct module_memory {
	void *base;
	_Bool is_rox;
	unsigned int size;
	void *mtn[7];
};
struct mod_kallsyms;
struct kernel_symbol {
	int value_offset, name_offset, namespace_offset;
};
struct exception_table_entry {
	int insn, fixup, data;
};
struct jump_entry {
	int code, target;
	long key;
};
struct bug_entry {
	int bug_addr_disp, file_disp;
	unsigned short line, flags;
};
struct static_call_site {
	int addr, key;
};
struct module {
	enum module_state state;
	struct list_head list;
	char name[56];
	const struct kernel_symbol *syms;
	unsigned int num_syms;
	unsigned int num_exentries;
	struct exception_table_entry *extable;
	struct module_memory mem[MOD_MEM_NUM_TYPES];
	unsigned int num_bugs;
	struct bug_entry *bug_table;
	struct mod_kallsyms *kallsyms;
	struct jump_entry *jump_entries;
	unsigned int num_jump_entries;
	int num_static_call_sites;
	struct static_call_site *static_call_sites;
};
struct hlist_node {
	struct hlist_node *next, **pprev;
};
struct kprobe {
	struct hlist_node hlist;
	struct list_head list;
	unsigned long nmissed;
	unsigned char *addr;
	unsigned int flags;
};
struct ftrace_page {
	struct ftrace_page *next;
	struct dyn_ftrace *records;
	int index, order;
};
struct dyn_ftrace {
	unsigned long ip, flags;
};
// What is only pointed to by a member is left out: everything is asked for.
int used(struct module *m, struct kprobe *p, struct ftrace_page *f, struct dyn_ftrace *d,
	 enum mod_mem_type t)
{
	return m->state + p->flags + f->index + d->flags + t;
}
int used_too(struct kernel_symbol *k, struct exception_table_entry *e, struct jump_entry *j,
	     struct bug_entry *b, struct static_call_site *s)
{
	return k->value_offset + e->insn + j->code + b->flags + s->key;
}
