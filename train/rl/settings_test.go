package rl

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/environment"
	"onering/internal/settings"
	"onering/reward"
	"onering/train/streams"
)

var updatePage = flag.Bool("update", false, "write docs/settings.md anew")

// TestSettingsPage: docs/settings.md describes every key as its declaration does.
func TestSettingsPage(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Settings\n\nAfter this page you can write a run file: it has every key, which may also be set with `--set section.key=value` or as `ONERING_SECTION_KEY`. `run.toml` in a run folder states them all. A setting that has no effect beside the others is named in a warning when a run begins. Every command that opens a model or data takes `--config` and `--set`, with those of these keys that have an effect in it: `onering COMMAND --set <TAB>` lists them. A key of TRL, verl, OpenRLHF or PEFT, in a run file or behind `--set`, is answered with the one that it is here. The page is made from the declarations in [config.go](../train/rl/config.go) and what they embed: `go test ./train/rl -run TestSettingsPage -update`.\n")
	c := Default()
	c.Reward.Rule, c.Objective.Settings = nil, nil // sections whose keys are described below, or elsewhere
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		fmt.Fprintf(&page, "\n## [%s]\n\n%s.\n", tag.Get("toml"), tag.Get("help"))
		writeKeys(t, &page, tag.Get("toml"), v.Field(i).Addr().Interface())
		switch tag.Get("toml") {
		case "reward":
			writeRewards(t, &page)
		case "environment":
			writeEnvironments(t, &page)
		case "stream":
			page.WriteString("\n### [[stream]]\n\nThe schedule is that of the weight, as [optimizer] has one of the learning rate.\n")
			writeKeys(t, &page, "stream", &streams.Stream{Schedule: c.Optimizer.Schedule})
		case "objective":
			page.WriteString("\nThe other keys are the objective's: `onering objectives show NAME` prints them with their defaults, and [objectives.md](objectives.md) says what they mean.\n")
		}
	}
	path := filepath.Join("..", "..", "docs", "settings.md")
	if *updatePage {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != page.String() {
		t.Error("docs/settings.md is not what the declarations say: go test ./train/rl -run TestSettingsPage -update")
	}
}

// writeEnvironments writes the possible keys of [environment] except the shared ones.
func writeEnvironments(t *testing.T, page *strings.Builder) {
	page.WriteString("\nThe other keys are the environment's: `onering environments show NAME` prints them with their defaults, and [environments.md](environments.md) says more of what they mean.\n")
	for _, name := range environment.Names() {
		e, err := environment.New(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(settings.Fields(e)) > 0 {
			fmt.Fprintf(page, "\n### environment %s\n\n%s.\n", name, upper(reward.About(e)))
			writeKeys(t, page, "environment", e)
		}
	}
}

// writeRewards writes the possible keys of [reward] except its name.
func writeRewards(t *testing.T, page *strings.Builder) {
	page.WriteString("\nThe other keys are the reward's: `onering rewards show NAME` prints them with their defaults, and [rewards.md](rewards.md) says more of what they mean.\n")
	for _, name := range reward.Names() {
		rule, err := reward.New(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(page, "\n### %s\n\n%s.\n", name, upper(reward.About(rule)))
		writeKeys(t, page, "reward", rule)
	}
	page.WriteString("\n### [[reward.use]]\n\nSeveral rewards take the place of `name`: a table each, with the keys of its reward beside these. [rewards.md](rewards.md#several-rewards) has the rules. `--set 'reward.use=[{name=\"math\"},{name=\"length\",weight=0.2}]'` states all of them, and `--set reward.use.length.weight=0.1` changes one.\n")
	writeKeys(t, page, "reward.use", &reward.Part{Weight: 1, Threshold: 1})
	page.WriteString("\nHow they make one stands in `[reward]` itself:\n")
	writeKeys(t, page, "reward", &reward.Combined{Combine: "sum"})
}

// writeKeys writes the table of the keys of the struct that pointer points to, if
// it has any.
func writeKeys(t *testing.T, page *strings.Builder, section string, pointer any) {
	t.Helper()
	for i, f := range slices.DeleteFunc(settings.Fields(pointer), func(f settings.Field) bool { return f.Key == "" }) {
		if i == 0 {
			page.WriteString("\n| key | default | |\n|---|---|---|\n")
		}
		if f.Help() == "" {
			t.Errorf("%s.%s has no help", section, f.Key)
		}
		text := upper(f.Help()) + "."
		if allowed := f.Allowed(); allowed != "" {
			text += " Must be " + allowed + "."
		}
		value := fmt.Sprintf("`%v`", f.Value)
		if f.Value.IsZero() && !f.Value.CanInt() && !f.Value.CanFloat() && f.Value.Kind() != reflect.Bool {
			value = "" // an empty string or list
		}
		fmt.Fprintf(page, "| `%s` | %s | %s |\n", f.Key, value, markdown.Replace(text))
	}
}

// markdown escapes a text, so that it is read neither as columns nor as tags.
var markdown = strings.NewReplacer("|", `\|`, "<", `\<`)

// upper returns s with a capital at its beginning.
func upper(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] }

// TestNeeds: what the tags needs of sections, objectives, rewards, environments and shared
// settings name are keys, with values that they can have.
func TestNeeds(t *testing.T) {
	known := map[string]settings.Field{}
	tags := map[string][]string{} // the sections in which each tag stands
	note := func(section, tag string, fields []settings.Field) {
		tags[tag] = append(tags[tag], section)
		for _, f := range fields {
			known[section+"."+f.Key] = f
			tags[f.Tag("needs")] = append(tags[f.Tag("needs")], section)
		}
	}
	c := Default()
	v := reflect.ValueOf(&c).Elem()
	for i, s := range settings.Sections(&c) {
		note(s.Name, v.Type().Field(i).Tag.Get("needs"), s.Fields)
	}
	for section, kind := range map[string]string{"objective": "objective", "reward": "reward", "environment": "environment", "optimizer": "optimizer"} {
		for _, name := range settings.Names(kind) {
			if err := settings.Choose(&c, section, name); err != nil {
				t.Fatal(err)
			}
			for _, s := range settings.Sections(&c) {
				if s.Name == section {
					note(section, "", s.Fields)
				}
			}
		}
	}
	delete(tags, "-") // needs nothing
	conditions := 0
	for tag, sections := range tags {
		for condition := range strings.FieldsSeq(strings.ReplaceAll(tag, ",", " ")) {
			conditions++
			path, want, stated := strings.Cut(condition, "=")
			path = strings.TrimSuffix(path, "!")
			found := slices.ContainsFunc(sections, func(section string) bool {
				f, ok := known[path]
				if !strings.Contains(path, ".") {
					f, ok = known[section+"."+path]
				}
				words := strings.Fields(f.Tag("choice"))
				return ok && (len(words) == 0 || slices.Contains(words, want))
			})
			if !found || !stated {
				t.Errorf("needs:%q names no key and value in %v", tag, sections)
			}
		}
	}
	if conditions < 40 {
		t.Errorf("only %d conditions were looked at", conditions)
	}
}
