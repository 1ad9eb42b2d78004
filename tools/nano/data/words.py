"""Vocabulary that the generators share."""
from __future__ import annotations

FIRST_NAMES = """Anna Ben Clara David Emma Felix Grace Henry Ida Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tina Tom Uma
Victor Wendy Yara Zoe Adam Bella Carl Dora Eric Fiona George Hannah Ivan Julia Kevin Laura Mark Nina Oscar Petra Rita
Simon Tara Vera Walter Alice Bruno Celia Dan Elsa Frank Greta Hugo Irene Jonas Karin Luis Maria Nora Omar Pia Ralf Sara
Theo Ursula Will Max Lily Lucy Peter John Mary James Susan Robert Linda Emily Daniel Sophie Alex Chris Jane Maya Ravi
Chen Yuki Amir Fatima Diego Lena Marco Priya Kofi Ingrid Pablo Elena Nadia Samuel""".split()

FEMALE = set("""Anna Clara Emma Grace Ida Kate Mia Olga Rosa Tina Uma Wendy Yara Zoe Bella Dora Fiona Hannah Julia Laura
Nina Petra Rita Tara Vera Alice Celia Elsa Greta Irene Karin Maria Nora Pia Sara Ursula Lily Lucy Mary Susan Linda Emily
Sophie Jane Maya Yuki Fatima Lena Priya Ingrid Elena Nadia""".split())

# singular, plural
COUNTABLE = [w.split("/") for w in """apple/apples pear/pears orange/oranges plum/plums lemon/lemons cookie/cookies
egg/eggs book/books pencil/pencils pen/pens stamp/stamps coin/coins marble/marbles card/cards sticker/stickers
shell/shells stone/stones button/buttons balloon/balloons flower/flowers rose/roses tulip/tulips candle/candles
cup/cups plate/plates ball/balls toy/toys key/keys ticket/tickets photo/photos picture/pictures bottle/bottles
box/boxes bag/bags nut/nuts cherry/cherries peach/peaches tomato/tomatoes potato/potatoes carrot/carrots onion/onions
muffin/muffins cake/cakes pie/pies sandwich/sandwiches bean/beans grape/grapes banana/bananas melon/melons
brick/bricks nail/nails screw/screws bead/beads ribbon/ribbons hat/hats sock/socks shirt/shirts magazine/magazines
poster/posters badge/badges crayon/crayons notebook/notebooks puzzle/puzzles kite/kites lamp/lamps chair/chairs
fish/fish duck/ducks hen/hens sheep/sheep goat/goats rabbit/rabbits letter/letters parcel/parcels spoon/spoons
fork/forks tile/tiles seed/seeds leaf/leaves acorn/acorns feather/feathers game/games disc/discs""".split()]
FOOD = set("""apple pear orange plum lemon cookie egg nut cherry peach tomato potato carrot onion muffin cake pie sandwich
bean grape banana melon""".split())

COLOURS = "red blue green yellow orange purple pink brown black white grey silver gold turquoise violet".split()
CITIES = """Paris London Rome Berlin Madrid Vienna Oslo Lisbon Athens Dublin Prague Warsaw Helsinki Stockholm Copenhagen
Brussels Budapest Cairo Tokyo Delhi Lima Quito Bogota Nairobi Accra Dakar Tunis Hanoi Seoul Manila Jakarta Sydney Perth
Toronto Ottawa Boston Chicago Denver Dallas Seattle Miami Hamburg Munich Milan Naples Turin Lyon Nice Porto Seville Bergen
Geneva Zurich Basel Krakow Riga Tallinn Vilnius Sofia Bucharest Belgrade Zagreb Sarajevo Istanbul Ankara Beirut Amman Doha
Muscat Karachi Lahore Mumbai Chennai Kolkata Dhaka Bangkok Osaka Kyoto Nagoya Busan Taipei Auckland Brisbane""".split()
ANIMALS = """fox wolf bear rabbit mouse cat dog horse cow sheep goat pig duck goose hen owl eagle sparrow robin gannet
swan frog toad snake turtle fish whale dolphin seal shark crab bee ant spider butterfly beetle snail lion tiger elephant
giraffe monkey zebra camel kangaroo penguin parrot crow squirrel hedgehog badger otter beaver deer moose donkey hamster
mole bat lizard octopus raven stork puffin""".split()
JOBS = """teacher doctor nurse baker farmer painter singer dancer driver pilot sailor cook waiter writer actor dentist
lawyer judge plumber carpenter gardener butcher tailor barber librarian engineer chemist miner fisher shepherd
photographer musician scientist translator builder electrician mechanic postman secretary cashier""".split()
INSTRUMENTS = "piano guitar violin flute drum trumpet harp cello organ clarinet banjo accordion trombone oboe".split()
SPORTS = """football tennis chess swimming running cycling boxing rowing skiing hockey golf archery climbing sailing
judo fencing volleyball basketball rugby cricket""".split()
DRINKS = "tea coffee milk water juice cocoa lemonade cider soup soda".split()
FOODS = """bread cheese rice pasta soup salad pizza pancakes beans fish honey porridge noodles dumplings omelette curry
stew chocolate yoghurt sushi""".split()
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
SEASONS = "spring summer autumn winter".split()
VEHICLES = "car bus train tram bicycle boat ship plane truck van scooter motorbike ferry taxi tractor".split()
PLACES = """park library market station school museum harbour garden beach forest bakery hospital theatre bridge castle
church farm factory office cafe restaurant zoo lake river mountain village square airport kitchen cellar attic""".split()
MATERIALS = "wood stone glass iron paper cotton wool leather clay silk plastic steel copper marble straw".split()
ADJECTIVES = """small large old new bright dark quiet loud heavy light soft hard warm cold clean dirty round flat long short
wide narrow deep smooth rough sweet bitter strong weak slow quick gentle brave clever kind lazy proud happy sad tired
hungry curious careful honest patient""".split()
TOPICS = """travel music health weather history cooking science art sport school garden money family nature books films
work holidays animals""".split()
LANGUAGES = "English French German Spanish Italian Dutch Polish Greek Turkish Arabic Hindi Japanese Korean Swedish Danish".split()
CURRENCIES = "EUR USD GBP JPY CHF SEK NOK DKK PLN CAD AUD INR".split()

CAPITALS = dict(line.split(":") for line in """France:Paris Germany:Berlin Italy:Rome Spain:Madrid Portugal:Lisbon
Austria:Vienna Norway:Oslo Sweden:Stockholm Finland:Helsinki Denmark:Copenhagen Ireland:Dublin Greece:Athens
Poland:Warsaw Hungary:Budapest Belgium:Brussels England:London Scotland:Edinburgh Wales:Cardiff Iceland:Reykjavik
Estonia:Tallinn Latvia:Riga Lithuania:Vilnius Bulgaria:Sofia Romania:Bucharest Serbia:Belgrade Croatia:Zagreb
Slovenia:Ljubljana Turkey:Ankara Egypt:Cairo Tunisia:Tunis Kenya:Nairobi Ghana:Accra Senegal:Dakar Ethiopia:Addis_Ababa
Japan:Tokyo China:Beijing India:New_Delhi Thailand:Bangkok Vietnam:Hanoi Indonesia:Jakarta Australia:Canberra
Canada:Ottawa Mexico:Mexico_City Peru:Lima Chile:Santiago Argentina:Buenos_Aires Brazil:Brasilia Ecuador:Quito
Colombia:Bogota Cuba:Havana Switzerland:Bern Ukraine:Kyiv Russia:Moscow Iran:Tehran Iraq:Baghdad Jordan:Amman
Lebanon:Beirut Morocco:Rabat Nepal:Kathmandu Malta:Valletta Cyprus:Nicosia""".split())
CAPITALS = {k.replace("_", " "): v.replace("_", " ") for k, v in CAPITALS.items()}

OPPOSITES = dict(pair.split("/") for pair in """hot/cold big/small fast/slow high/low light/dark happy/sad old/young
rich/poor hard/soft wet/dry full/empty open/closed early/late strong/weak loud/quiet clean/dirty long/short wide/narrow
deep/shallow good/bad right/wrong up/down left/right inside/outside above/below first/last always/never day/night
summer/winter black/white love/hate win/lose buy/sell begin/end push/pull give/take true/false sweet/sour thick/thin
smooth/rough brave/cowardly heavy/light near/far sharp/blunt tall/short north/south east/west safe/dangerous
cheap/expensive simple/complicated awake/asleep alive/dead same/different""".split())

PLURALS = dict(pair.split("/") for pair in """child/children mouse/mice foot/feet tooth/teeth man/men woman/women
goose/geese ox/oxen sheep/sheep leaf/leaves knife/knives wolf/wolves city/cities baby/babies box/boxes bus/buses
fox/foxes cat/cats dog/dogs house/houses tree/trees potato/potatoes tomato/tomatoes hero/heroes lady/ladies life/lives
wife/wives half/halves loaf/loaves story/stories party/parties church/churches dish/dishes glass/glasses match/matches
person/people fish/fish deer/deer photo/photos piano/pianos key/keys day/days toy/toys shelf/shelves thief/thieves""".split())

PAST = dict(pair.split("/") for pair in """go/went see/saw eat/ate drink/drank run/ran swim/swam sing/sang write/wrote
read/read speak/spoke take/took give/gave come/came know/knew think/thought buy/bought bring/brought catch/caught
teach/taught find/found feel/felt keep/kept sleep/slept leave/left lose/lost make/made say/said tell/told sell/sold
stand/stood sit/sat get/got begin/began break/broke choose/chose drive/drove fall/fell fly/flew forget/forgot
grow/grew hear/heard hide/hid hold/held meet/met pay/paid ride/rode rise/rose send/sent wear/wore win/won walk/walked
talk/talked play/played jump/jumped work/worked""".split())

BABY = dict(pair.split("/") for pair in """dog/puppy cat/kitten cow/calf horse/foal sheep/lamb goat/kid pig/piglet
hen/chick duck/duckling goose/gosling bear/cub lion/cub deer/fawn kangaroo/joey frog/tadpole swan/cygnet owl/owlet
fox/cub seal/pup""".split())
SOUNDS = dict(pair.split("/") for pair in """dog/barks cat/meows cow/moos horse/neighs sheep/bleats pig/grunts
duck/quacks hen/clucks lion/roars wolf/howls frog/croaks owl/hoots snake/hisses bee/buzzes mouse/squeaks
donkey/brays crow/caws goose/honks""".split())
COLOUR_OF = dict(pair.split("/") for pair in """grass/green snow/white coal/black blood/red banana/yellow lemon/yellow
carrot/orange sky/blue milk/white tomato/red chocolate/brown strawberry/red salt/white gold/yellow charcoal/black
leaf/green lime/green polar_bear/white flamingo/pink pumpkin/orange""".split())
COLOUR_OF = {k.replace("_", " "): v for k, v in COLOUR_OF.items()}

# Common nouns that the chat data defines with WordNet's first sense; ~ marks a mass noun.
DEFINED = """fox wolf bear rabbit mouse cat dog horse cow goat pig duck goose hen owl eagle sparrow gannet swan frog toad
snake turtle whale dolphin seal shark crab bee ant spider butterfly beetle snail lion tiger elephant giraffe monkey zebra
camel kangaroo penguin parrot crow squirrel hedgehog badger otter beaver moose donkey hamster bat lizard octopus
hammer saw screwdriver knife fork spoon cup plate bottle kettle oven stove refrigerator lamp candle mirror clock broom
bucket ladder rope wheel engine bicycle automobile bus train boat ship airplane helicopter rocket truck tractor wagon
bridge road tunnel house castle tower church school hospital library museum theater factory office farm barn garden
kitchen bedroom door window roof wall chair table bed desk shelf drawer carpet curtain pillow blanket
tree flower leaf seed forest mountain river lake ocean island desert valley volcano beach cave glacier
star planet comet galaxy apple pear banana lemon cherry grape tomato potato carrot onion cabbage pumpkin
~bread ~butter ~cheese ~milk ~honey ~sugar ~salt ~rice ~flour ~soup ~tea ~coffee ~juice cake cookie sandwich
piano guitar violin flute drum trumpet harp teacher doctor nurse baker farmer painter singer pilot sailor carpenter
plumber tailor dentist lawyer engineer scientist poet king queen hat coat shirt shoe sock glove scarf umbrella
book newspaper dictionary letter map pencil pen camera telephone telescope microscope computer keyboard robot
~gold ~silver ~iron ~copper ~glass ~paper ~wood ~wool ~cotton ~silk ~leather ~plastic ~steel ~sand ~clay
~rain ~snow ~ice ~fog thunderstorm rainbow ~water ~fire ~smoke ~gravity ~electricity
triangle square circle heart brain ~blood bone muscle tooth tongue nose ear eye hand finger foot knee
football tennis chess swimming poem novel song orchestra painting statue coin wallet ticket key lock
algorithm atom molecule magnet battery thermometer compass calendar language alphabet sentence""".split()

SMALL_NUMBERS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty""".split()


def article(word: str) -> str:
    return ("an " if word[0].lower() in "aeiou" else "a ") + word


def pronoun(name: str) -> tuple[str, str, str]:
    """he/she, his/her, him/her"""
    return ("she", "her", "her") if name in FEMALE else ("he", "his", "him")


def listing(items: list[str]) -> str:
    """red, green and blue"""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]

# Where WordNet's first sense is not the common one, or its sentence would be clumsy.
OWN_DEFINITIONS = dict(line.split("|") for line in """gannet|A gannet is a large white seabird that dives for fish.
turtle|A turtle is a reptile with a hard shell around its body.
bear|A bear is a large heavy animal with thick fur and strong claws.
cat|A cat is a small animal with soft fur that is often kept as a pet.
dog|A dog is an animal that has lived with people for thousands of years.
mouse|A mouse is a small animal with a long tail that eats seeds.
whale|A whale is a very large animal that lives in the sea and breathes air.
dolphin|A dolphin is a clever sea animal that breathes air.
seal|A seal is a sea animal with flippers that rests on rocks and ice.
goose|A goose is a large water bird with a long neck.
bat|A bat is a small animal that flies at night.
toad|A toad is an animal like a frog with dry, rough skin.
tiger|A tiger is a large wild cat with orange fur and black stripes.
elephant|An elephant is a very large animal with a long trunk.
giraffe|A giraffe is the tallest animal on land and has a very long neck.
penguin|A penguin is a bird of cold southern seas that swims but cannot fly.
parrot|A parrot is a bright bird that can copy words.
crow|A crow is a large black bird with a rough call.
hedgehog|A hedgehog is a small animal with spines on its back.
badger|A badger is a strong animal with a striped face that digs burrows.
otter|An otter is a playful animal that swims in rivers and eats fish.
beaver|A beaver is an animal that builds dams of wood in rivers.
donkey|A donkey is an animal like a small horse with long ears.
octopus|An octopus is a sea animal with eight arms.
hammer|A hammer is a tool for driving nails.
saw|A saw is a tool with teeth for cutting wood.
fork|A fork is a tool with prongs for eating.
plate|A plate is a flat dish for food.
ladder|A ladder is a set of steps between two long sides for climbing.
refrigerator|A refrigerator is a machine that keeps food cold.
church|A church is a building where Christians pray.
table|A table is a piece of furniture with a flat top.
blanket|A blanket is a warm cover for a bed.
planet|A planet is a large round body that goes around a star.
galaxy|A galaxy is a very large group of stars.
cherry|A cherry is a small red fruit with a stone inside.
pumpkin|A pumpkin is a large round orange fruit that grows on a vine.
cabbage|A cabbage is a vegetable with many leaves around its middle.
salt|Salt is a white substance that gives taste to food.
rice|Rice is a grain that is eaten in many countries.
cake|A cake is a sweet food baked from flour, eggs and sugar.
sandwich|A sandwich is two slices of bread with a filling between them.
nurse|A nurse is a person who takes care of the sick.
queen|A queen is a woman who rules a country.
glove|A glove is a piece of clothing for the hand.
shoe|A shoe is a piece of clothing for the foot.
sock|A sock is a soft piece of clothing for the foot.
umbrella|An umbrella is a cover on a stick that keeps off the rain.
camera|A camera is a device for taking pictures.
gold|Gold is a soft yellow metal of high value.
silver|Silver is a soft white metal of high value.
water|Water is a clear liquid without colour or taste.
square|A square is a shape with four equal sides and four right angles.
circle|A circle is a round shape: all its points are equally far from the centre.
heart|A heart is the organ that pumps blood through the body.
brain|A brain is the organ that we think with.
tooth|A tooth is a hard white part of the mouth that bites food.
tennis|Tennis is a game for two or four players with rackets and a ball.
chess|Chess is a board game for two players with sixteen pieces each.
swimming|Swimming is moving through water with arms and legs.
football|Football is a game in which two teams try to kick a ball into a goal.
battery|A battery is a device that stores electricity.
key|A key is a piece of metal that opens a lock.
computer|A computer is a machine that works with numbers and text.
train|A train is a row of cars that an engine pulls along rails.
forest|A forest is a large place with many trees.
telephone|A telephone is a device for talking with people far away.
poem|A poem is a short text in verses.""".splitlines())
