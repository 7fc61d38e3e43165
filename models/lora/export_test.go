package lora

import (
	"fmt"

	"onering/models"
)

// Matched returns the products of a config beside a model, as "MODULE RANK SCALE", and the
// tensors that modules_to_save names.
func Matched(text []byte, m models.Model) (products, whole []string, err error) {
	c, err := parseConfig(text)
	if err != nil {
		return nil, nil, err
	}
	list, _, err := c.products(m)
	for _, p := range list {
		products = append(products, fmt.Sprintf("%s %d %.6g", p.module, p.rank, p.scale))
	}
	return products, c.replacedBySave(m.Layout().Names()), err
}
