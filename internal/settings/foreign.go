package settings

import (
	_ "embed"
	"slices"
	"strings"
)

// foreignNames map settings of other trainers (TRL, transformers, verl, OpenRLHF, PEFT)
// to ours. A line has paths, of which the first that exists counts, and the foreign
// names; or names and a remark.
//
//go:embed foreign.txt
var foreignNames string

// foreign says, as the end of a message, which setting replaces a key of another trainer,
// by its flag if the command has that; "" if it is unknown. usage is as for Called, or nil.
func (r *Resolved) foreign(key string, usage func(flag string) string) string {
	key = strings.ReplaceAll(strings.ToLower(key[strings.LastIndexByte(key, '.')+1:]), "-", "_")
	for line := range strings.Lines(foreignNames) {
		answer, names, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if !strings.Contains(" "+names+" ", " "+key+" ") || key == "" {
			continue
		}
		if !strings.Contains(answer, ".") {
			return "; here " + answer
		}
		for path := range strings.FieldsSeq(answer) {
			if f := r.find(path); f != nil {
				help := f.tag.Get("help")
				if usage != nil && usage(f.Flag) != "" {
					path, help = "--"+f.Flag, usage(f.Flag)
				}
				return strings.TrimSuffix("; here it is "+path+": "+help, ": ")
			}
			section, _, _ := strings.Cut(path, ".")
			if slices.ContainsFunc(r.sections, func(t Section) bool { return t.Name == section && plugOf(t.Pointer) != nil }) {
				return "; here it is " + path + ", which not every " + section + " has"
			}
		}
	}
	return ""
}

// Called says, as the end of a message, which flag or setting an unknown flag may mean. usage
// returns what a flag of the command is for; "" if it has no such flag.
func (r *Resolved) Called(flag string, usage func(flag string) string) string {
	hint := r.foreign(flag, usage)
	for _, t := range r.sections {
		key := strings.ReplaceAll(strings.TrimPrefix(flag, t.Name+"-"), "-", "_")
		for _, f := range t.Fields {
			if hint != "" || t.list != "" || f.Key != key && f.Flag != flag {
				continue
			}
			hint = "; it is --set " + t.Name + "." + f.Key + "=..."
			if usage(f.Flag) != "" {
				hint = "; it is --" + f.Flag
			}
		}
	}
	return hint
}

// find returns the setting at a path, nil if there is none.
func (r *Resolved) find(path string) *Field {
	for _, t := range r.sections {
		if key, ok := strings.CutPrefix(path, t.Name+"."); ok {
			if k := slices.Index(keysOf(t.Fields), key); k >= 0 {
				return &t.Fields[k]
			}
		}
	}
	return nil
}
