package cmd

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"onering/internal/settings"
	"onering/objectives"
	"onering/reward"
	"onering/train/rl"
)

// A plugin is a section of the run file in which the key "name" chooses the
// implementation, and that has the implementation's settings as further keys.
type plugin struct {
	section string // and what messages call it
	config  any    // pointer to the section's struct
	name    *string
	chosen  any // the implementation; its exported fields are settings
	choose  func(name string) error
}

// plugins lists the sections of c that choose an implementation by name.
func plugins(c *rl.Config) []plugin {
	return []plugin{
		{"reward", &c.Reward, &c.Reward.Name, c.Reward.Rule, func(name string) (err error) {
			c.Reward.Rule, err = newReward(name)
			return err
		}},
		{"objective", &c.Objective, &c.Objective.Name, c.Objective.Settings, func(name string) (err error) {
			c.Objective.Settings, err = newObjective(name)
			return err
		}},
	}
}

// newObjective constructs an objective; the error suggests a name.
func newObjective(name string) (objectives.Objective, error) {
	o, err := objectives.New(name)
	if err != nil {
		return nil, unknownPlugin("objective", name, objectives.Names())
	}
	return o, nil
}

// newReward constructs a reward; the error suggests a name.
func newReward(name string) (reward.Reward, error) {
	r, err := reward.New(name)
	if err != nil {
		return nil, unknownPlugin("reward", name, reward.Names())
	}
	return r, nil
}

func unknownPlugin(kind, name string, names []string) error {
	return fmt.Errorf("unknown %s %q%s (there are %s)", kind, name, didYouMean(name, names), strings.Join(names, ", "))
}

// running names the implementation for messages.
func (p plugin) running() string {
	if *p.name == "" {
		return "several rewards"
	}
	return *p.name
}

// choosePlugin constructs the implementation that the strongest layer names, with
// its defaults. The settings of weaker layers that are for another implementation
// are dropped, with a warning: `--objective grpo` is to work with any run file.
func (r *resolved) choosePlugin(p plugin, layers []layer) ([]layer, error) {
	var named setting
	kept, last := slices.Clone(layers), 0
	for i, l := range layers {
		s, ok, err := p.choice(l)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		named, last = s, i
		before := p.running()
		if s.path() == usePath {
			*p.name = ""
		} else if err := r.apply(s, []section{{name: p.section, fields: settings.Fields(p.config)}}); err != nil {
			return nil, fmt.Errorf("%s: %w", s.place, err)
		}
		if p.running() != before {
			for j := range i {
				kept[j] = p.dropSettings(kept[j], before)
			}
		}
	}
	if named.path() == usePath {
		return r.chooseParts(named, kept, last)
	}
	err := p.choose(*p.name)
	if err != nil && named.place != "" {
		err = fmt.Errorf("%s: %w", named.place, err)
	}
	return kept, err
}

// choice returns the setting of l that chooses the implementation: the last one counts.
func (p plugin) choice(l layer) (chosen setting, ok bool, err error) {
	for _, s := range l {
		if s.section != p.section || s.key != "name" && s.path() != usePath {
			continue
		}
		if ok && s.key != chosen.key {
			return s, false, fmt.Errorf("%s: %s goes without %s (%s): a run has one reward by its name, or a list", s.place, s.path(), chosen.path(), chosen.place)
		}
		chosen, ok = s, true
	}
	return chosen, ok, nil
}

// dropSettings returns l without the settings of the implementation from.
func (p plugin) dropSettings(l layer, from string) layer {
	var kept layer
	var dropped []string
	place := ""
	for _, s := range l {
		if s.section != p.section && !strings.HasPrefix(s.section, p.section+".") || s.key == "name" {
			kept = append(kept, s)
			continue
		}
		if dropped = append(dropped, s.path()); place == "" {
			place = s.place
		}
	}
	if dropped != nil {
		slog.Warn("settings of another "+p.section+" are not used",
			"settings", strings.Join(dropped, ", "), "place", place, "for", from, "running", p.running())
	}
	return kept
}
