// Package wrapped makes models known to package models that have a language model and a vision
// tower: Qwen3.5 and the larger models of Gemma 3 and Mistral 3. Import it for effect.
//
// The language model alone is read, trained and written. The other tensors of a folder are
// copied as they are, so that transformers loads what Save writes as the whole model.
package wrapped

import (
	"onering/models"
	"onering/models/decoder"
)

func init() {
	for _, x := range []wrapper{
		{"gemma3", "Gemma 3 from 4B on, without images", "Gemma3ForConditionalGeneration", "gemma3_text", "",
			"language_model.model.", "language_model.", "model.language_model.", []string{"vision_tower.", "multi_modal_projector."}},
		{"mistral3", "Mistral Small 3.1 and later, Ministral 3, without images", "Mistral3ForConditionalGeneration", "mistral", "ministral3",
			"language_model.model.", "language_model.", "model.language_model.", []string{"vision_tower.", "multi_modal_projector."}},
		{"qwen3_5", "Qwen3.5 and Qwen3.6, dense, without images", "Qwen3_5ForConditionalGeneration", "qwen3_5_text", "",
			"model.language_model.", "", "model.language_model.", []string{"model.visual.", "mtp."}},
	} {
		models.Register(x.modelType, x.about, x.open)
	}
}

// A wrapper is a kind of models with a language model within.
type wrapper struct {
	modelType, about string
	class            string // its class in transformers
	text             string // the model_type of the language model where text_config has none
	tied             string // the family of language models that are tied where nothing says so, against the family's default
	body, head       string // what names of the language model begin with
	path             string // what paths of modules begin with in place of body
	beside           []string
}

func (x wrapper) open(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass(x.class)
	d, err := models.ReadText(c, x.text, x.tied)
	s, ok := d.(decoder.Shape)
	if err != nil || !ok {
		return nil, err
	}
	s.Names = s.Names.Within(x.body, x.head, x.path, x.beside...)
	return s, nil
}
