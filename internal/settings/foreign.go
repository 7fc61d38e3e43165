package settings

import (
	_ "embed"
	"slices"
	"strings"
)

// foreignNames map what other programs call things (TRL, transformers, verl, OpenRLHF, PEFT,
// vLLM, lm-eval) to what is here. A line has words and the foreign names. A word is the path of
// a setting, a flag that is not a setting, or FILE, a command's argument; the first that there is
// counts. Where the line begins with "here", it is a remark.
//
//go:embed foreign.txt
var foreignNames string

// foreign says, as the end of a message, what replaces a key of another program, where it is
// typed a flag if there is one; "" if it is unknown.
func (r *Resolved) foreign(key string, typed bool) string {
	key = strings.ReplaceAll(strings.ToLower(key[strings.LastIndexByte(key, '.')+1:]), "-", "_")
	for line := range strings.Lines(foreignNames) {
		answer, names, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if !strings.Contains(" "+names+" ", " "+key+" ") || key == "" {
			continue
		}
		if strings.HasPrefix(answer, "here ") {
			return "; " + answer
		}
		for word := range strings.FieldsSeq(answer) {
			section, _, isPath := strings.Cut(word, ".")
			name, help := word, ""
			switch f := r.find(word); {
			case !isPath && (!typed || r.of.Others[word] == ""), typed && !r.of.Sets && r.of.Flags[word] == "" && isPath:
				continue
			case !isPath:
				help = r.of.Others[word]
			case f != nil:
				help = f.tag.Get("help")
			case slices.ContainsFunc(r.sections, func(t Section) bool { return t.Name == section && plugOf(t.Pointer) != nil }):
				return "; here it is " + word + ", which not every " + section + " has"
			default:
				continue
			}
			if typed && isPath {
				name = called(r.of.Flags, word, "--set "+word+"=...")
			}
			return strings.TrimSuffix("; here it is "+name+": "+help, ": ")
		}
	}
	return ""
}

// called returns the flag of the setting at a path, or other if it has none.
func called(flags map[string]string, path, other string) string {
	if flag := flags[path]; flag != "" {
		return "--" + flag
	}
	return other
}

// Called says, as the end of a message, which flag or setting an unknown flag may mean.
func (r *Resolved) Called(flag string) string {
	if hint := r.foreign(flag, true); hint != "" {
		return hint
	}
	for _, t := range r.sections {
		key := strings.ReplaceAll(strings.TrimPrefix(flag, t.Name+"-"), "-", "_")
		for _, f := range t.Fields {
			path := t.Name + "." + f.Key
			if t.list == "" && (f.Key == key || f.Flag == flag) && (r.of.Sets || r.of.Flags[path] != "") {
				return "; it is " + called(r.of.Flags, path, "--set "+path+"=...")
			}
		}
	}
	return ""
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
