package latex

import (
	"slices"
	"strings"
)

// Droppable reports whether a counted noun (a Unit's name with its # cut off) may
// be left out of an answer: "5 red apples" is 5. Of several words one has to be known
// as a thing that is counted. Words that are not known are not dropped, because they
// may change the number: "5 gross", "5 squared".
func Droppable(noun string) bool {
	if slices.ContainsFunc(strings.Fields(noun), func(w string) bool { return relative[w] }) {
		return false
	}
	return Generic(noun) || slices.ContainsFunc(strings.Fields(noun), func(w string) bool { return countedNouns[w] })
}

// relative are words that say what a number is the measure of: 5 orders of magnitude.
var relative = setOf("order magnitude")

// countedNouns are things that word problems count, in the singular. Words that are
// also numbers or operations (score, gross, quarter, couple, fold) are left out.
var countedNouns = setOf(`
	acorn act adult afternoon airplane album alligator anchovy angle animal answer ant antelope apartment app appetizer
	apple apron aquarium area arm arrangement artwork ash athlete axis baby bag baguette ball balloon banana bandage bar barbell
	barrel base baseball basket basketball bat batch bathroom battery bead bean bear beaver bed bedroom bee beetle bench
	berry bicycle bike bill bird birdhouse biscuit bit blanket block blouse blueberry board boat bone book bookmark
	boot bottle bouquet bowl box boy bracelet branch bread breath brick bridge brother brownie browny brush bucket bug builder
	building bulb bulldog bundle bun burger burrito bus business butterfly button byte cabinet cabbage cage cake camera candle candy
	cap car card cardinal carnation carpet carriage carrot cart carton case cashier castle cat caterpillar cell
	center centre chair challenge chain chapter character charm chart cheerleader cheese cheesecake cherry chest chick chicken child
	chimpanzee chip chocolate choice chord circle city clam class classmate classroom client clock clover clown coach coat
	coconut code codeword coffee coin collection color colour colony coloring column combination comic committee component computer
	cone configuration container cookie cooky copy corner cost cottage counter country course court cousin cow crab cracker
	crane crate crayon cricket crocodile crow cub cube cucumber cupboard cupcake curtain curve customer cycle cyclist dancer
	date daughter deck deer desk diagonal diamond dictionary die dime dinner dinosaur direction disc dish disk distance divisor
	doctor dog doll dolphin domino donation donkey donut door dot doughnut dragon drawer drawing dress drink driver
	drop drum duck duckling dumpling ear earring edge egg eggplant elephant elf elevator email element employee engine
	engineer entry envelope equation eraser error essay event exam example exercise exit face factor factory family
	fan farm farmer father favor feather feature female fence ferret field figure film finger fish flag flamingo flat
	flight flip floor flower flute fly folder follower fork form frame friend frog fruit function fuse gallery game garage
	garden gate gem gift giraffe girl glass glove goal goat goldfish goose grade grain grandchild grandparent
	grape graph graphic group guard guest guitar guppy gun gymnast haircut hall hamburger hammer hamster hand
	handshake hare hat head heart hedgehog helper hen heron hexagon hike hill hippo hobby hole home horse hospital
	hotdog hotel house human hummingbird husband hyena insect instrument instructor integer intersection interval invitation
	island item jacket jar jeep jellybean jersey job judge jug juggler juice jump kangaroo kernel key kid kind kite kitten knife knive
	knight knot koala label lake ladder lady lamb lamp lane lap laptop lawn layer leaf leave lecture leg lemon lesson letter
	level librarian library light lily line lion list lizard lock log lollipop loop lot lunch machine magazine magnet
	mailbox male mammal man mango mangoe map marble mark marker market marshmallow mask mat match matchstick meal meatball medal
	meeting melon member memory message microwave milkshake mineral mistake mitten model moment monkey moon mosquito
	mother motorcycle mountain mouse move movie movy muffin mug mushroom musician nail name nap nation necklace needle neighbor nest
	net newspaper nickel night node noodle note notebook novel number nurse nut nurse object octopus office
	officer onion option orange orbit orchard orchid order orphan ostrich outcome outfit owl owner oyster pack package packet pad page paintbrush
	painter painting pal pan pancake panda panel pant pants papaya paper paragraph parcel parent park parrot part particle partition partner
	party passenger path patient pattern paw pea peach peacock peanut pear pearl pebble pen pencil penguin pen pentagon penny
	people pepper performance performer permutation person pet petal phone photo photograph photographer pianist pickle picnic picture pie piece pig
	pigeon pillow pilot pin pine pineapple pipe pirate pitcher pizza place plane planet plank plant plate platform platter play player
	playlist plum pocket poem point pole police polygon pomegranate pony pool popcorn popsicle portion position post postcard poster pot
	potato potatoe present president pretzel price prime prince princess prize problem product professor program project
	pumpkin pupil puppet puppy purse puzzle pyramid quail queen question quilt quiz quizze rabbit raccoon race racer radish raffle raisin
	raspberry rat ray reader rectangle recipe refill region report representation resident restaurant result revolution ribbon
	ride rider ring river road robin robot rock roll roof room rooster root rope rose rotation round route row rower rug rule
	runner sack sailor salad sale salesman salmon sample sandwich sapphire sausage scarf scarve school scientist scissor scoop screen screw
	sea seal seashell season seat secretary section seed segment semester sentence sequence serving session set shape
	share shark sheep sheet shelf shell shelve ship shirt shoe shop shot show shower shrimp sibling side sign singer sink sister site
	skater skirt skittle sleeve slice slide slot snack snail snake sneaker snowball snowflake snowman sock soda sofa soldier
	solution son song sort soup space spaceship spectator speech spider spinach spoon spot spray sprinkler sprinter square squirrel
	stack staff stair stall stamp star starfish state station statue steak stem step stick sticker stitch stocking stone stop store
	story strand straw strawberry stream street string stripe student subject subset suggestion suit suitcase sum sunflower surfer
	swan sweater sweet swimmer symbol table tablet tail tank tape target task tattoo taxi teacher team tear tent term test
	text textbook theater thief thing ticket tie tiger tile tin tire toad toast toe token tomato tomatoe tool tooth teeth toothbrush
	toothpick top topping tourist towel tower town toy track tractor train trainer tray treat tree triangle trick tricycle
	trip triplet trophy trout truck trumpet truth tube tuba tulip tuple turkey turn turtle twin type umbrella uncle unicorn uniform user
	value van vase vegetable vehicle vertex vertice video view viewer village violin visit visitor volcano volunteer vote voter
	vowel voyage wagon waiter waitress wall wallet walnut walrus watch watermelon wave weapon wedding weed whale wheel
	whisker widget wife window winner wizard wolf wolve woman word work worker workout worm wrapper writer xylophone yam
	yogurt zebra zero zombie zoo
	å angstrom atm au bps byte db decibel dpi dyne erg farad fps gb henry kb kbps knot lumen lux mb mbps mmhg parsec psi rpm
	sievert steradian tb tesla torr weber`)
