package export

import (
	"fmt"
	"strings"

	"onering/models"
)

// purposes says what each Program computes.
var purposes = map[string]string{
	"prefill":           "Computes prompts, padded on the right, from their first token and writes their keys and values into the cache.",
	"decode":            "Computes one more token for each row of the cache.",
	"sample.draw":       "Draws a token for each row from the whole distribution.",
	"sample.greedy":     "Takes the first largest logit of each row.",
	"sample.candidates": "Says which tokens are the likeliest of each row, for filters to choose from.",
	"layer.forward":     "Computes one layer over the packed tokens of a micro-batch. One graph serves all layers.",
	"layer.backward":    "Computes the gradients of one layer from what its forward graph kept.",
	"norm.forward":      "Computes the final norm of the rows that predict response tokens, over the sampling temperature.",
	"norm.backward":     "Computes the gradients of the final norm.",
	"head.forward":      "Adds a slice of the vocabulary to the running log-sum-exp and mean of the logits.",
	"head.target":       "Computes the logits of the response tokens. Then logp = logit - z, and the entropy is z - u.",
	"head.backward":     "Adds a slice's share to the gradients of the head and of what goes into it.",
	"rows.gather":       "Looks rows of a matrix up, on a device.",
	"rows.add":          "Adds rows onto a matrix, on a device. A device may add rows of one id in any order: a GPU does, so that the last bits of their sum change from run to run.",
	"rows.pair":         "Sums rows two at a time, on a device. Run as often as an id occurs twice, it leaves one row of each id for rows.add, with the same bits each time.",
	"norm2":             "Sums the squares of a slice of the gradients, for clipping them by their norm.",
	"norm2.scaled":      "Is norm2 for gradients of a scaled loss, with a count of those that are not finite.",
	"adamw":             "Updates a slice of weights by AdamW.",
	"adamw.copy":        "Is adamw, and writes the new weights in 16 bits too, for the graphs that read them so.",
}

// meanings says what each port holds, by the first word of its Program's name and
// its own name.
var meanings = map[string]string{
	"prefill.ids":            "the prompts, padded on the right with any token",
	"prefill.pos":            "the position of each token in its row: 0 to T-1, row after row",
	"prefill.cos":            "cosines of the angles: of position p and pair i of a head, p*rope_frequencies[i], the product in float32",
	"prefill.sin":            "sines of the same angles",
	"prefill.seqlens":        "the length of each prompt, minus 1",
	"prefill.total":          "T",
	"prefill.last":           "b*T+length-1, the place of each prompt's last token",
	"prefill.mask":           "0 on and below the diagonal, the lowest float32 above it",
	"prefill.hidden":         "the normed state of each prompt's last token, for sample",
	"decode.ids":             "the newest token of each row",
	"decode.pos":             "its position, which is how many tokens of the row are in the cache",
	"decode.cos":             "as for prefill, for all positions that occur",
	"decode.sin":             "as for prefill",
	"decode.at":              "(b, g, pos): where the keys and values of row b and key head g go",
	"decode.mask":            "0 for the places up to pos, the lowest float32 for those beyond, where the cache must hold finite numbers",
	"decode.places":          "the numbers from 0 to S-1",
	"decode.seqlens":         "how many tokens of each row are in the cache, as pos",
	"decode.total":           "the largest seqlens plus 1",
	"decode.hidden":          "the normed state of the new token, for sample",
	"sample.hidden":          "as prefill and decode return it",
	"sample.inv_temperature": "1 over the temperature",
	"sample.uniforms":        "numbers from [0,1): the token is the first whose cumulative probability exceeds it",
	"sample.k":               "how many of the likeliest tokens to return, at most V",
	"sample.next":            "the tokens",
	"sample.candidates":      "the likeliest tokens, in descending order",
	"sample.logp":            "their log-probs at the temperature, over the whole vocabulary",
	"sample.entropy":         "in nats, of the same distribution",
	"layer.x":                "what goes into the layer: into layer 0 the rows of the embedding",
	"layer.y":                "what comes out of it, into the next layer",
	"layer.dy":               "dL/dy: of the last layer that of norm.backward at the rows that predict response tokens, else 0",
	"layer.dx":               "dL/dx, which is dL/dy of the layer before; of layer 0 it is added onto the embedding's gradient at the rows of the tokens",
	"layer.pos":              "the position of each packed token in its sequence",
	"layer.cos":              "as for prefill; all 1 for a layer without rotary embedding (no_rope_layers)",
	"layer.sin":              "as for prefill; all 0 for a layer without rotary embedding",
	"layer.mask":             "0 on and below the diagonal, the lowest float32 above it",
	"layer.rows":             "the packed token at each place of each row; any, such as 0, where a row has ended",
	"layer.tokens":           "b*T+t, the place of each packed token; of a token that lies in several rows any of its places",
	"layer.valid":            "1 at the places in tokens, 0 at all others",
	"layer.copies":           "all places of the first M packed tokens, M at least 1: [[tokens[0]]] where rows share none",
	"layer.copied":           "1 for each place in copies, 0 where a token has fewer than J: [[[1]]] where rows share none",
	"layer.bounds":           "where the blocks of queries begin, i*T/blocks rounded down, and T (only with --blocks above 1)",
	"layer.q":                "the queries, turned (with norms of heads: before norm and turn)",
	"layer.k":                "the keys, as the queries",
	"layer.v":                "the values",
	"layer.o":                "what attention returned",
	"layer.x2":               "the stream after attention",
	"layer.gate":             "the gate's product",
	"layer.up":               "the product beside it",
	"norm.x":                 "rows of the last layer's y: those of the tokens before each response token",
	"norm.inv_temperature":   "1 over the temperature at which the responses were sampled",
	"norm.h":                 "the normed rows over the temperature",
	"norm.dh":                "dL/dh, when all slices of head.backward have been added",
	"norm.dx":                "dL/dx",
	"head.h":                 "as norm.forward returns it",
	"head.E":                 "rows of the head; any slices that make up the vocabulary, in head.target all of it",
	"head.z":                 "the log-sum-exp of the logits of the slices so far: -1e30 before the first, and in head.backward that of all slices",
	"head.z_out":             "with this slice",
	"head.u":                 "the mean of the logits under the softmax of the slices so far: 0 before the first",
	"head.u_out":             "with this slice",
	"head.logits":            "the logits of the slice (only where they are kept)",
	"head.y":                 "the response tokens",
	"head.at":                "where the logits of the response tokens are: (r, y[r] - the slice's first row), or (r, 0) where y[r] is in another slice",
	"head.dlogit":            "w[r], or 0 where y[r] is in another slice",
	"head.logit":             "their logits",
	"head.w":                 "dL/dlogp of each response token, which the objective returns; of a scaled loss, times the scale",
	"head.v":                 "dL/dentropy of each response token, 0 for none (only in the entropy form)",
	"head.entropy":           "z - u of all slices (only in the entropy form)",
	"head.dh":                "the running dL/dh: 0 before the first slice",
	"head.dh_out":            "with this slice",
	"head.dE":                "the running gradient of the rows of the head",
	"head.dE_out":            "with this share",
	"rows.X":                 "a matrix of rows: the embedding, a gradient, or the last layer's y",
	"rows.ids":               "which of its rows",
	"rows.rows":              "what to add to them, or up",
	"rows.y":                 "the rows X[ids]; of rows.pair rows[left] + pair rows[right]",
	"rows.left":              "the row on the left of each sum",
	"rows.right":             "the row on its right; any, such as that on the left, where there is none",
	"rows.pair":              "1 where there is a row on the right, else 0",
	"rows.X_out":             "X with the rows added",
	"norm2.g":                "gradients, any slice of them",
	"norm2.unscale":          "1 over the scale of the loss",
	"norm2.sum":              "the sum of their squares, after unscale; norm = sqrt(sum over all slices)",
	"norm2.found":            "how many elements of g are infinite or NaN",
	"adamw.p":                "weights, any slice of them",
	"adamw.g":                "their gradients",
	"adamw.m":                "the running mean of g, 0 before the first update",
	"adamw.v":                "the running mean of g^2, 0 before the first update",
	"adamw.clip":             "what multiplies g: min(1, max_norm/norm), over the scale of the loss if there is one",
	"adamw.beta1":            "beta1",
	"adamw.beta2":            "beta2",
	"adamw.rest1":            "1 - beta1",
	"adamw.rest2":            "1 - beta2",
	"adamw.rate":             "lr / (1 - beta1^t) for update t = 1, 2, ...",
	"adamw.root":             "1 / sqrt(1 - beta2^t)",
	"adamw.eps":              "eps",
	"adamw.keep":             "1 - lr*weight_decay",
	"adamw.p1":               "the new weights",
	"adamw.m1":               "the new m",
	"adamw.v1":               "the new v",
	"adamw.copy":             "the new weights rounded to 16 bits",
}

// programOf returns the name of a Program without its form.
func programOf(name string) string {
	for _, form := range models.Forms {
		name = strings.TrimSuffix(name, form.Suffix())
	}
	return name
}

// describe says what a port of a Program holds. It is an error if nobody has said.
func describe(program string, p models.Port, output bool) (string, error) {
	switch p.Role {
	case models.Parameter:
		return "a weight, see weights in the manifest", nil
	case models.Gradient:
		if output {
			return "its sum with this micro-batch's gradient", nil
		}
		return "the running gradient of " + p.Of + ", 0 before the first micro-batch", nil
	case models.Keys, models.Values:
		what := fmt.Sprintf("the cached %s of layer %d", map[models.Role]string{models.Keys: "keys", models.Values: "values"}[p.Role], p.Layer)
		if output {
			return what + " with the new tokens", nil
		}
		return what + ", any finite numbers where no token is", nil
	}
	family, _, _ := strings.Cut(programOf(program), ".")
	text := meanings[family+"."+p.Name]
	if text == "" {
		return "", fmt.Errorf("export: nothing says what port %q of %s holds", p.Name, program)
	}
	return text, nil
}
