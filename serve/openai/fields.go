package openai

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// passedOver are fields that say who asks and how to account for it.
var passedOver = strings.Fields("user safety_identifier prompt_cache_key prompt_cache_retention metadata store service_tier cache_prompt cache_salt keep_alive request_id priority")

const (
	noPenalties  = "there are no penalties here"
	noConstraint = "what a model writes is not constrained: ask for the form in the prompt, and check the answer"
	noBeams      = "responses are sampled, one beside the other"
)

// neutral are fields that would change what is answered, and there is no such option: the
// values that change nothing, as JSON, and why there are no others. Each may also be null.
var neutral = map[string]struct {
	values []string
	why    string
}{
	"frequency_penalty": {[]string{"0"}, noPenalties}, "presence_penalty": {[]string{"0"}, noPenalties}, "repetition_penalty": {[]string{"1"}, noPenalties}, "repeat_penalty": {[]string{"1"}, noPenalties},
	"logit_bias": {[]string{"{}"}, "logits are as the model gives them"}, "allowed_token_ids": {[]string{"[]"}, noConstraint}, "bad_words": {[]string{"[]"}, noConstraint},
	"response_format": {[]string{`{"type":"text"}`}, noConstraint},
	"echo":            {[]string{"false"}, "the prompt's tokens come with return_token_ids, and onering score has their log-probs"},
	"suffix":          {[]string{`""`}, "a model continues its prompt"},
	"greedy":          {[]string{"false"}, "a temperature of 0 takes the likeliest token"}, "do_sample": {[]string{"true"}, "a temperature of 0 takes the likeliest token"},
	"functions": {[]string{"[]"}, "give them as tools"}, "function_call": {[]string{`"none"`, `"auto"`}, "give functions as tools"},
	"min_tokens":                    {[]string{"0"}, "an end-of-sequence token ends a response wherever it comes"},
	"include_stop_str_in_output":    {[]string{"false"}, "token_ids has the tokens of the stop text"},
	"spaces_between_special_tokens": {[]string{"true"}, "special tokens are no part of a text"},
	"detokenize":                    {[]string{"true"}, "token_ids comes beside the text"}, "add_special_tokens": {nil, "/v1/completions adds those that the tokenizer adds, and a chat has those of its template"},
	"add_generation_prompt": {[]string{"true"}, "a chat is answered"}, "continue_final_message": {[]string{"false"}, "ask /v1/completions with the beginning of the answer in the prompt"},
	"enable_thinking": {nil, "give it in chat_template_kwargs"}, "thinking": {nil, "give what the chat template reads in chat_template_kwargs"},
	"use_beam_search": {[]string{"false"}, noBeams}, "num_beams": {[]string{"1"}, noBeams}, "length_penalty": {[]string{"1", "0"}, noBeams}, "early_stopping": {[]string{"false"}, noBeams},
	"typical_p": {[]string{"1"}, "there are top_p, top_k and min_p"}, "tfs_z": {[]string{"1"}, "there are top_p, top_k and min_p"},
	"modalities": {[]string{`["text"]`}, "there is text only"}, "verbosity": {[]string{`"medium"`}, "ask for it in the prompt"},
}

// nothing are values by which a field that is not known asks for nothing.
var nothing = []string{"null", "false", "0", `""`, "[]", "{}"}

// checkFields refuses fields that the request type does not have, unless they change nothing.
func checkFields(fields map[string]json.RawMessage, request reflect.Type) error {
	known, own := slices.Clone(passedOver), []string(nil)
	for _, f := range reflect.VisibleFields(request) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			if known = append(known, name); len(f.Index) == 1 {
				own = append(own, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		option, is := neutral[name]
		switch {
		case slices.Contains(own, name):
		case is && !isNull(value) && !isOneOf(value, option.values):
			return invalid(name, "%s = %s: must be %s: %s", name, shortened(value), strings.Join(append(slices.Clone(option.values), "left out"), " or "), option.why)
		case !is && !slices.Contains(known, name) && !isOneOf(value, nothing):
			return invalid(name, "the field %q is not known here", name)
		}
	}
	return nil
}

// isOneOf reports whether a value is one of a list, as JSON has it: 1.0 is 1.
func isOneOf(value json.RawMessage, list []string) bool {
	var is any
	if json.Unmarshal(value, &is) != nil {
		return false
	}
	return slices.ContainsFunc(list, func(text string) bool {
		var want any
		return json.Unmarshal([]byte(text), &want) == nil && reflect.DeepEqual(is, want)
	})
}

// shortened is a value for a message.
func shortened(value json.RawMessage) string {
	if len(value) > 60 {
		return string(value[:50]) + "..."
	}
	return string(value)
}
